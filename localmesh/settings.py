"""What a person may change about a local mesh, read once from the environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


class SettingError(ValueError):
    """A variable has a value that cannot be meant; says which."""


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("is not a number") from None


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("is not a whole number") from None


VARIABLES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "TOOLMESH_LOG_LEVEL": ("log_level", str),
    "TOOLMESH_DRAIN_SECONDS": ("drain_seconds", _number),
    "TOOLMESH_OTLP_ENDPOINT": ("otlp_endpoint", lambda text: text or None),
    "TOOLMESH_TRACE_SAMPLE_RATIO": ("trace_sample_ratio", _number),
    "TOOLMESH_EDGE_RATE": ("rate_per_second", _whole),
    "TOOLMESH_EDGE_BURST": ("rate_burst", _whole),
    "TOOLMESH_RELAY": ("relay", str),
    "TOOLMESH_KAFKA_BROKERS": ("kafka_brokers", str),
    "TOOLMESH_TRUSTED_ISSUERS": ("trusted_issuers", str),
    "TOOLMESH_DID_RESOLVER": ("did_resolver", str),
    "TOOLMESH_TOOL_PACKS": ("tool_packs", str),
    "TOOLMESH_VOLUMES": ("volumes", str),
    "TOOLMESH_RUNSC": ("runsc", str),
    "TOOLMESH_EGRESS_INTERNAL": ("egress_internal", str),
    "TOOLMESH_HOOKS": ("hooks", str),
    "TOOLMESH_MAX_TOKEN_LIFETIME": ("max_token_lifetime", _whole),
}


def settings_from(environment: Mapping[str, str]) -> Settings:
    """Reads the settings; raises SettingError with the name of a variable whose value is none."""
    chosen: dict[str, Any] = {}
    for name, (field, read) in VARIABLES.items():
        if name not in environment:
            continue
        try:
            chosen[field] = read(environment[name])
        except ValueError as error:
            raise SettingError(f"{name}: {environment[name]!r} {error}") from None
    return Settings(**chosen)


def state_path(chosen: Path | None = None) -> Path:
    """Returns the state folder: the chosen one, else TOOLMESH_STATE, else the user's own default."""
    if chosen is None:
        chosen = Path(os.environ.get("TOOLMESH_STATE") or "~/.local/state/toolmesh")
    return chosen.expanduser().absolute()


def inherited_environment() -> dict[str, str]:
    """Returns the environment without any TOOLMESH_ variable: services refuse those they do not know."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TOOLMESH_")}
