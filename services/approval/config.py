"""Settings of the approval process."""

from __future__ import annotations

from dataclasses import dataclass

from libs.common.runtime.settings import Address, ProcessSettings, address, postgres_url, setting


@dataclass(frozen=True, kw_only=True)
class Settings(ProcessSettings):
    """What approval needs beside what every process needs: where its tickets are, and who signs tokens."""

    database_url: str = setting("DATABASE_URL", postgres_url, secret=True)
    authz_address: Address = setting("AUTHZ_ADDRESS", address)
