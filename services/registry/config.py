"""The settings of the registry."""

from __future__ import annotations

from dataclasses import dataclass

from libs.common.runtime.settings import Address, ProcessSettings, address, one_of, postgres_url, redis_url, setting
from services.registry.domain.publishing.scan.policy import DEFAULT_POLICY, ScanPolicy


@dataclass(frozen=True, kw_only=True)
class Settings(ProcessSettings):
    """What the registry needs beside what every process needs."""

    database_url: str = setting("DATABASE_URL", postgres_url, secret=True)
    redis_url: str = setting("REDIS_URL", redis_url, secret=True)
    authz_address: Address = setting("AUTHZ_ADDRESS", address)
    # Who counts calls. Without it usage is unknown, so nothing is retired for want of it.
    audit_address: Address | None = setting("AUDIT_ADDRESS", address, default=None)
    removal_policy: str = setting("REMOVAL_POLICY", one_of("extend", "force"), default="extend")
    # What a suspicious text or name does: `class=block` or `class=warn`, comma between; others keep their default.
    scan_policy: ScanPolicy = setting("SCAN_POLICY", ScanPolicy.parse, default=DEFAULT_POLICY)
