"""The settings of the audit service."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from libs.common.settings import Address, ProcessSettings, address, existing_file, postgres_url, setting


@dataclass(frozen=True, kw_only=True)
class Settings(ProcessSettings):
    """What the service needs beside what every process needs."""

    database_url: str = setting("DATABASE_URL", postgres_url, secret=True)
    authz_address: Address = setting("AUTHZ_ADDRESS", address)
    checkpoint_key: Path = setting("CHECKPOINT_KEY", existing_file)
