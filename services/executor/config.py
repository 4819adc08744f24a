"""What the executor reads from its environment."""

from __future__ import annotations

from dataclasses import dataclass

from libs.common.settings import Address, ProcessSettings, address, number, postgres_url, setting


@dataclass(frozen=True, kw_only=True)
class Settings(ProcessSettings):
    """The settings of one executor process."""

    database_url: str = setting("DATABASE_URL", postgres_url, secret=True)
    registry_address: Address = setting("REGISTRY_ADDRESS", address)
    authz_address: Address = setting("AUTHZ_ADDRESS", address)
    audit_address: Address = setting("AUDIT_ADDRESS", address)
    audit_linger_ms: float = setting("AUDIT_LINGER_MS", number(0, 50), default=2.5)
    audit_wait_seconds: float = setting("AUDIT_WAIT_SECONDS", number(0.05, 30), default=5.0)
