"""The settings of the authz process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from libs.common.settings import ProcessSettings, existing_folder, postgres_url, setting, whole


@dataclass(frozen=True, kw_only=True)
class Settings(ProcessSettings):
    """What authz needs to know."""

    database_url: str = setting("DATABASE_URL", postgres_url, secret=True)
    signing_keys: Path = setting("SIGNING_KEYS", existing_folder)
    max_token_lifetime: int = setting("MAX_TOKEN_LIFETIME", whole(1, 366 * 86_400), default=86_400)
    decision_ttl: int = setting("DECISION_TTL", whole(1, 3600), default=60)
