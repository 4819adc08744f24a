"""What the executor reads from its environment."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path

from libs.common.redaction.tenant_scanners import TenantScanners, tenant_scanners_file
from libs.common.runtime.settings import (
    Address,
    ProcessSettings,
    address,
    existing_file,
    existing_folder,
    number,
    one_of,
    postgres_url,
    redis_url,
    setting,
    whole,
)
from libs.common.sealing import Seal, seal_folder

_VOLUME_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
# A folder's own name may hold a comma; between two there is one before the next name.
_BETWEEN_VOLUMES = re.compile(r",(?=\s*[a-z][a-z0-9_-]{0,62}=/)")


def networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """Parse networks such as `10.1.0.0/16 fd00:7::/64`, with spaces or commas between them."""
    try:
        return tuple(ip_network(each) for each in text.replace(",", " ").split())
    except ValueError:
        raise ValueError("is not a list of networks") from None


def existing_folders(text: str) -> tuple[Path, ...]:
    """Parse folders that are there, with commas between them; a single one may have commas in its name."""
    if text and Path(text).is_dir():
        return (Path(text),)
    return tuple(_named_folder(each.strip()) for each in text.split(","))


def named_folders(text: str) -> tuple[tuple[str, Path], ...]:
    """Parse `name=/folder`, with commas between them. A name is lower case letters, digits, dashes and underscores."""
    named: dict[str, Path] = {}
    for each in _BETWEEN_VOLUMES.split(text):
        name, _, folder = each.strip().partition("=")
        if not _VOLUME_NAME.fullmatch(name) or name in named:
            raise ValueError("is not a list of name=/folder with a different name for each")
        named[name] = _named_folder(folder).resolve()
    return tuple(named.items())


def _named_folder(text: str) -> Path:
    # Nothing at all would be the folder that the process happens to be in.
    if not text:
        raise ValueError("is not a list of folders")
    return existing_folder(text)


@dataclass(frozen=True, kw_only=True)
class Settings(ProcessSettings):
    """The settings of one executor process."""

    database_url: str = setting("DATABASE_URL", postgres_url, secret=True)
    redis_url: str = setting("REDIS_URL", redis_url, secret=True)
    sealing_keys: Seal = setting("SEALING_KEYS", seal_folder, secret=True)
    registry_address: Address = setting("REGISTRY_ADDRESS", address)
    authz_address: Address = setting("AUTHZ_ADDRESS", address)
    audit_address: Address = setting("AUDIT_ADDRESS", address)
    audit_wait_seconds: float = setting("AUDIT_WAIT_SECONDS", number(0.05, 30), default=5.0)
    outbox_limit: int = setting("OUTBOX_LIMIT", whole(1, 1_000_000), default=10_000)
    redaction_rules: TenantScanners = setting("REDACTION_RULES", tenant_scanners_file, default=TenantScanners())
    egress_internal: tuple[IPv4Network | IPv6Network, ...] = setting("EGRESS_INTERNAL", networks, default=())
    """Networks of the inside that confined tools may be led to; metadata services never are."""
    runsc: Path | None = setting("RUNSC", existing_file, default=None)
    """gVisor's program; where it is not named, `runsc` on the PATH."""
    result_ttl_seconds: float = setting("RESULT_TTL_SECONDS", number(1, 604_800), default=3600.0)
    """How long a result that is too large to be embedded can be fetched."""
    result_max_bytes: int = setting("RESULT_MAX_BYTES", whole(1, 1 << 30), default=64 << 20)
    """The largest result that is stored."""
    result_cache_bytes: int = setting("RESULT_CACHE_BYTES", whole(0, 1 << 34), default=16 << 20)
    """What results of read-only tools may take in memory, to be used again; 0 for none."""
    tool_packs: tuple[Path, ...] = setting("TOOL_PACKS", existing_folders, default=())
    """Folders that hold tool packs."""
    volumes: tuple[tuple[str, Path], ...] = setting("VOLUMES", named_folders, default=())
    """Folders that tools may see, by the name that their permissions use."""
    workers: int = setting("WORKERS", whole(1, 1000), default=16)
    """How many warm workers there may be at once."""
    workers_per_tenant: int = setting("WORKERS_PER_TENANT", whole(1, 1000), default=8)
    worker_idle_seconds: float = setting("WORKER_IDLE_SECONDS", number(0.1, 86_400), default=60.0)
    worker_calls: int = setting("WORKER_CALLS", whole(1, 1_000_000), default=1000)
    """How many calls a worker answers before it is started anew."""
    cold_starts: int = setting("COLD_STARTS", whole(1, 100), default=4)
    """How many sandboxes may be started at the same moment."""
    sandbox_cgroups: str = setting("SANDBOX_CGROUPS", one_of("required", "preferred", "off"), default="preferred")
    """Whether confined processes are limited by control groups: always or not at all, wherever it can be done, or never."""
    tool_concurrency: int = setting("TOOL_CONCURRENCY", whole(1, 10_000), default=16)
    """How many calls of one tool may be under way at once, where its manifest does not say."""
    service_concurrency: int = setting("SERVICE_CONCURRENCY", whole(1, 10_000), default=16)
    """How many calls may lean on one outside service at once."""
    sandbox_concurrency: int = setting("SANDBOX_CONCURRENCY", whole(1, 10_000), default=16)
    """How many calls may run outside of the executor's own process at once."""
    queue_limit: int = setting("QUEUE_LIMIT", whole(1, 10_000), default=512)
    """How many calls may wait for their turn, of all tools."""
    tool_queue_limit: int = setting("TOOL_QUEUE_LIMIT", whole(1, 10_000), default=256)
    queue_aging_seconds: float = setting("QUEUE_AGING_SECONDS", number(0.01, 60), default=0.5)
    """How long a call waits until that makes up for one level of priority."""
    hooks: Path | None = setting("HOOKS", existing_file, default=None)
    """A JSON file with the hooks of the deployment."""
    claim_lease_seconds: float = setting("CLAIM_LEASE_SECONDS", number(0.5, 300), default=10.0)
    """How long a call with a key may be silent before it is taken for dead. It is renewed while the call is alive."""
