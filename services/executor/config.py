"""What the executor reads from its environment."""

from __future__ import annotations

from dataclasses import dataclass

from libs.common.redaction.book import ScannerBook, book_file
from libs.common.sealing import Seal, seal_folder
from libs.common.settings import Address, ProcessSettings, address, number, postgres_url, redis_url, setting, whole


@dataclass(frozen=True, kw_only=True)
class Settings(ProcessSettings):
    """The settings of one executor process."""

    database_url: str = setting("DATABASE_URL", postgres_url, secret=True)
    redis_url: str = setting("REDIS_URL", redis_url, secret=True)
    sealing_keys: Seal = setting("SEALING_KEYS", seal_folder, secret=True)
    registry_address: Address = setting("REGISTRY_ADDRESS", address)
    authz_address: Address = setting("AUTHZ_ADDRESS", address)
    audit_address: Address = setting("AUDIT_ADDRESS", address)
    audit_linger_ms: float = setting("AUDIT_LINGER_MS", number(0, 50), default=2.5)
    audit_wait_seconds: float = setting("AUDIT_WAIT_SECONDS", number(0.05, 30), default=5.0)
    outbox_limit: int = setting("OUTBOX_LIMIT", whole(1, 1_000_000), default=10_000)
    redaction_rules: ScannerBook = setting("REDACTION_RULES", book_file, default=ScannerBook())
