"""The settings of the registry."""

from __future__ import annotations

from dataclasses import dataclass

from libs.common.settings import Address, ProcessSettings, address, postgres_url, redis_url, setting


@dataclass(frozen=True, kw_only=True)
class Settings(ProcessSettings):
    """What the registry needs beside what every process needs."""

    database_url: str = setting("DATABASE_URL", postgres_url, secret=True)
    redis_url: str = setting("REDIS_URL", redis_url, secret=True)
    authz_address: Address = setting("AUTHZ_ADDRESS", address)
