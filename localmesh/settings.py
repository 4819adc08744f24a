"""What a person may change about a local mesh, read once from the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

TRUST_DOMAIN = "toolmesh.local"
ISSUER = "https://authz.toolmesh.local"
AUDIENCE = "toolmesh"
LOOPBACK = "127.0.0.1"
# The folder that holds the packages; services start here so that `python -m services.x` finds them.
ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Settings:
    """The choices of one run. Every field has the value that suits a laptop."""

    log_level: str = "info"
    drain_seconds: float = 5.0
    otlp_endpoint: str | None = None
    trace_sample_ratio: float = 1.0
    rate_per_second: int = 2000
    rate_burst: int = 4000
    relay: str = "redis"
    kafka_brokers: str = ""
    trusted_issuers: str = ""
    did_resolver: str = ""
    tool_packs: str = str(ROOT / "examples" / "packs")
    """Folders that hold tool packs, with commas between them."""
    volumes: str = ""
    """Folders that tools may see, as `name=/folder` with commas between them; empty for one of the mesh's own, named reports."""
    runsc: str = ""
    """gVisor's program; empty for the one on the PATH, else the one that `make gvisor` fetched."""
    egress_internal: str = ""
    hooks: str = ""
    max_token_lifetime: int = 86_400


def settings_from(environment: Mapping[str, str]) -> Settings:
    """Reads the settings; raises ValueError where a number is not one."""
    default = Settings()
    return Settings(
        log_level=environment.get("TOOLMESH_LOG_LEVEL", default.log_level),
        drain_seconds=float(environment.get("TOOLMESH_DRAIN_SECONDS", default.drain_seconds)),
        otlp_endpoint=environment.get("TOOLMESH_OTLP_ENDPOINT") or None,
        trace_sample_ratio=float(environment.get("TOOLMESH_TRACE_SAMPLE_RATIO", default.trace_sample_ratio)),
        rate_per_second=int(environment.get("TOOLMESH_EDGE_RATE", default.rate_per_second)),
        rate_burst=int(environment.get("TOOLMESH_EDGE_BURST", default.rate_burst)),
        relay=environment.get("TOOLMESH_RELAY", default.relay),
        kafka_brokers=environment.get("TOOLMESH_KAFKA_BROKERS", default.kafka_brokers),
        trusted_issuers=environment.get("TOOLMESH_TRUSTED_ISSUERS", default.trusted_issuers),
        did_resolver=environment.get("TOOLMESH_DID_RESOLVER", default.did_resolver),
        tool_packs=environment.get("TOOLMESH_TOOL_PACKS", default.tool_packs),
        volumes=environment.get("TOOLMESH_VOLUMES", default.volumes),
        runsc=environment.get("TOOLMESH_RUNSC", default.runsc),
        egress_internal=environment.get("TOOLMESH_EGRESS_INTERNAL", default.egress_internal),
        hooks=environment.get("TOOLMESH_HOOKS", default.hooks),
        max_token_lifetime=int(environment.get("TOOLMESH_MAX_TOKEN_LIFETIME", default.max_token_lifetime)),
    )


def state_path(chosen: Path | None = None) -> Path:
    """Returns the state folder: the chosen one, else TOOLMESH_STATE, else the user's own default."""
    if chosen is None:
        chosen = Path(os.environ.get("TOOLMESH_STATE") or "~/.local/state/toolmesh")
    return chosen.expanduser().absolute()


def inherited_environment() -> dict[str, str]:
    """Returns the environment without any TOOLMESH_ variable: services refuse those they do not know."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TOOLMESH_")}
