"""The settings of the authz process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from libs.common.runtime.settings import (
    ProcessSettings,
    existing_file,
    existing_folder,
    postgres_url,
    redis_url,
    setting,
    whole,
)
from libs.common.sealing import Seal, seal_folder


def folder_or_https(text: str) -> Path | str:
    """Parse the path of a folder, or an https:// address."""
    if text.startswith("https://") and len(text) > len("https://"):
        return text
    try:
        return existing_folder(text)
    except ValueError:
        raise ValueError("is neither a folder nor an https:// address") from None


@dataclass(frozen=True, kw_only=True)
class Settings(ProcessSettings):
    """What authz needs to know."""

    database_url: str = setting("DATABASE_URL", postgres_url, secret=True)
    redis_url: str = setting("REDIS_URL", redis_url, default="", secret=True)
    signing_keys: Path = setting("SIGNING_KEYS", existing_folder)
    max_token_lifetime: int = setting("MAX_TOKEN_LIFETIME", whole(1, 366 * 86_400), default=86_400)
    trusted_issuers: Path | None = setting("TRUSTED_ISSUERS", existing_file, default=None)
    did_resolver: Path | str = setting("DID_RESOLVER", folder_or_https, default="")
    sealing_keys: Seal | None = setting("SEALING_KEYS", seal_folder, default=None, secret=True)
    decision_ttl: int = setting("DECISION_TTL", whole(1, 3600), default=60)
