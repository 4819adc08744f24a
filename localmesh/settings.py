"""Settings of the local mesh, read once from the environment.

The command line imports this module at every start, so it does without pydantic.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

TRUST_DOMAIN = "toolmesh.local"
ISSUER = "https://authz.toolmesh.local"
AUDIENCE = "toolmesh"
LOOPBACK = "127.0.0.1"
# What the edge can count to.
MOST_CALLS = 4_000_000_000
# The folder that holds the packages; services start here so that `python -m services.x` finds them.
ROOT = Path(__file__).resolve().parent.parent
# Without the texts that only a reader of code needs, the services together hold some 50 MB less. `make setup` compiles
# them so, in a place of their own: the distribution's Python may have compiled its modules in no such way, and no other
# user could write it there.
LEAN = ("-OO", "-X", f"pycache_prefix={ROOT / '.cache' / 'bytecode'}")


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
    """Folders that tools may see, as `name=/folder` with commas between them; empty for one of the mesh's own, named
    reports."""
    runsc: str = ""
    """gVisor's program; empty for the one that `make gvisor` built, else the one on the PATH."""
    sandbox_cgroups: str = ""
    """Whether cgroups limit sandboxes: `required`, `preferred` or `off`; empty for the executor's default."""
    sandbox_cgroup_parent: str = ""
    sandbox_folders: str = ""
    egress_internal: str = ""
    vault_address: str = ""
    """The Vault or OpenBao that holds credentials; empty for none."""
    vault_path: str = ""
    vault_login: str = ""
    vault_role: str = ""
    vault_credential: str = ""
    vault_mount: str = ""
    vault_namespace: str = ""
    vault_ca: str = ""
    hooks: str = ""
    approval_rules: str = ""
    approval_notifications: str = ""
    mcp_views: str = ""
    """The file with the views of MCP; empty for none."""
    max_token_lifetime: int = 86_400
    console_oidc_issuer: str = ""
    console_oidc_client_id: str = ""
    console_oidc_client_secret: str = field(default="", repr=False)
    console_oidc_ca: str = ""


class SettingError(ValueError):
    """A variable has an invalid value."""


def one_of(*choices: str) -> Callable[[str], str]:
    """Return a parser of one of a few words."""

    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"is not one of {', '.join(choices)}")
        return text

    return parse


def number(low: float, high: float) -> Callable[[str], float]:
    """Return a parser of a number within bounds."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ValueError("is not a number") from None
        if not low <= value <= high:
            raise ValueError(f"is not between {low:g} and {high:g}")
        return value

    return parse


def whole(low: int, high: int) -> Callable[[str], int]:
    """Return a parser of a whole number within bounds."""

    def parse(text: str) -> int:
        if not text.isdigit() or not low <= int(text) <= high:
            raise ValueError(f"is not a whole number between {low} and {high}")
        return int(text)

    return parse


def _collector(text: str) -> str:
    """Parses the OTLP endpoint. Envoy needs the port, too."""
    try:
        parts = urlsplit(text)
        complete = parts.scheme in ("http", "https") and parts.port is not None
    except ValueError:
        complete = False
    if not complete:
        raise ValueError("is not http://host:port")
    return text


def _place(text: str) -> str:
    """Resolves a path against the caller's folder; parts run in another one."""
    return str(Path(text.strip()).expanduser().absolute())


def _places(text: str) -> str:
    if Path(text).is_dir():  # perhaps with a comma in its name
        return _place(text)
    return ",".join(_place(each) for each in text.split(","))


def _named_places(text: str) -> str:
    named = (each.partition("=") for each in re.split(r",(?=\s*[a-z][a-z0-9_-]*=)", text))
    return ",".join(f"{name.strip()}={_place(folder) if folder else ''}" for name, _, folder in named)


def _place_or_address(text: str) -> str:
    return text if "://" in text else _place(text)


VARIABLES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "TOOLMESH_LOG_LEVEL": ("log_level", one_of("debug", "info", "warning", "error")),
    "TOOLMESH_DRAIN_SECONDS": ("drain_seconds", number(0, 600)),
    "TOOLMESH_OTLP_ENDPOINT": ("otlp_endpoint", _collector),
    "TOOLMESH_TRACE_SAMPLE_RATIO": ("trace_sample_ratio", number(0, 1)),
    "TOOLMESH_EDGE_RATE": ("rate_per_second", whole(1, MOST_CALLS)),
    "TOOLMESH_EDGE_BURST": ("rate_burst", whole(1, MOST_CALLS)),
    "TOOLMESH_RELAY": ("relay", one_of("redis", "kafka", "none")),
    "TOOLMESH_KAFKA_BROKERS": ("kafka_brokers", str),
    "TOOLMESH_TRUSTED_ISSUERS": ("trusted_issuers", _place),
    "TOOLMESH_DID_RESOLVER": ("did_resolver", _place_or_address),
    "TOOLMESH_TOOL_PACKS": ("tool_packs", _places),
    "TOOLMESH_VOLUMES": ("volumes", _named_places),
    "TOOLMESH_RUNSC": ("runsc", _place),
    "TOOLMESH_SANDBOX_CGROUPS": ("sandbox_cgroups", one_of("required", "preferred", "off")),
    "TOOLMESH_SANDBOX_CGROUP_PARENT": ("sandbox_cgroup_parent", str),
    "TOOLMESH_SANDBOX_FOLDERS": ("sandbox_folders", _places),
    "TOOLMESH_EGRESS_INTERNAL": ("egress_internal", str),
    "TOOLMESH_VAULT_ADDRESS": ("vault_address", str),
    "TOOLMESH_VAULT_PATH": ("vault_path", str),
    "TOOLMESH_VAULT_LOGIN": ("vault_login", one_of("approle", "kubernetes", "jwt", "token")),
    "TOOLMESH_VAULT_ROLE": ("vault_role", str),
    "TOOLMESH_VAULT_CREDENTIAL": ("vault_credential", _place),
    "TOOLMESH_VAULT_MOUNT": ("vault_mount", str),
    "TOOLMESH_VAULT_NAMESPACE": ("vault_namespace", str),
    "TOOLMESH_VAULT_CA": ("vault_ca", _place),
    "TOOLMESH_HOOKS": ("hooks", _place),
    "TOOLMESH_CONSOLE_OIDC_ISSUER": ("console_oidc_issuer", str),
    "TOOLMESH_CONSOLE_OIDC_CLIENT_ID": ("console_oidc_client_id", str),
    "TOOLMESH_CONSOLE_OIDC_CLIENT_SECRET": ("console_oidc_client_secret", str),
    "TOOLMESH_CONSOLE_OIDC_CA": ("console_oidc_ca", _place),
    "TOOLMESH_APPROVAL_RULES": ("approval_rules", _place),
    "TOOLMESH_APPROVAL_NOTIFICATIONS": ("approval_notifications", _place),
    "TOOLMESH_MCP_VIEWS": ("mcp_views", _place),
    "TOOLMESH_MAX_TOKEN_LIFETIME": ("max_token_lifetime", whole(1, 366 * 86_400)),
}


def settings_from(environment: Mapping[str, str]) -> Settings:
    """Reads the settings; raises SettingError with the variable's name. Services validate file contents themselves."""
    chosen: dict[str, Any] = {}
    for name, (attribute, read) in VARIABLES.items():
        if not environment.get(name):
            continue
        try:
            chosen[attribute] = read(environment[name])
        except ValueError as error:
            raise SettingError(f"{name}: {environment[name]!r} {error}") from None
    return Settings(**chosen)


def state_path(chosen: Path | None = None) -> Path:
    """Returns the state folder: the chosen one, else TOOLMESH_STATE, else the user's own default."""
    if chosen is None:
        chosen = Path(os.environ.get("TOOLMESH_STATE") or "~/.local/state/toolmesh")
    return chosen.expanduser().absolute()


def inherited_environment() -> dict[str, str]:
    """Returns the environment without TOOLMESH_ variables, which services refuse if unknown, and without libpq's
    (PGSSLMODE, PGOPTIONS), which describe another database."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("TOOLMESH_", "PG"))}
