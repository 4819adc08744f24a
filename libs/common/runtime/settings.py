"""Settings: one frozen object per process, read from the environment once, printable without its secrets.

A process that starts with a value it cannot use would fail later and further from the cause, so every malformed,
missing or unknown TOOLMESH_ variable is named at once and the process does not start.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

PREFIX = "TOOLMESH_"
# Variables of the local runner and the client, which a service's environment may hold without meaning anything to it.
FOREIGN = {
    "TOOLMESH_STATE",
    "TOOLMESH_TOKEN",
    "TOOLMESH_URL",
    "TOOLMESH_CA",
    "TOOLMESH_KEY_SECRET",
    "TOOLMESH_ACCESS_TOKEN",
    "TOOLMESH_AUDIT_KEY",
    "TOOLMESH_DEBUG",
}
T = TypeVar("T")


class SettingsError(Exception):
    """Says which variables are wrong, all at once."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


@dataclass(frozen=True, slots=True)
class Address:
    """Where something listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def setting(name: str, parse: Callable[[str], Any], *, default: Any = MISSING, secret: bool = False) -> Any:
    """Declare a field that is read from TOOLMESH_`name`; without a default it is required."""
    metadata = {"variable": PREFIX + name, "parse": parse, "secret": secret}
    return field(metadata=metadata) if default is MISSING else field(default=default, metadata=metadata)


def load(cls: type[T], environ: Mapping[str, str] | None = None) -> T:
    """Build the settings of a process, or raise SettingsError with every problem there is."""
    environ = os.environ if environ is None else environ
    declared: dict[str, Field[Any]] = {f.metadata["variable"]: f for f in fields(cls)}  # type: ignore[arg-type]
    known = declared.keys() | FOREIGN
    problems = [
        f"{n} is not a setting of this process" for n in sorted(environ) if n.startswith(PREFIX) and n not in known
    ]
    values: dict[str, Any] = {}
    for name, spec in declared.items():
        text = environ.get(name, "")
        if text:
            try:
                values[spec.name] = spec.metadata["parse"](text)
            except ValueError as error:
                shown = "its value" if spec.metadata["secret"] else repr(text[:80])
                problems.append(f"{name}: {shown} {error}")
        elif spec.default is MISSING:
            problems.append(f"{name} is required and not set")
    if problems:
        raise SettingsError(problems)
    return cls(**values)


def describe(settings: Any) -> dict[str, str]:
    """Return every setting as text, secrets as `***`."""
    shown = {}
    for spec in fields(settings):
        value = getattr(settings, spec.name)
        shown[spec.metadata["variable"]] = "***" if spec.metadata["secret"] and value else str(value)
    return shown


def address(text: str) -> Address:
    """Parse `host:port`."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 <= int(port) <= 65535:
        raise ValueError("is not host:port")
    return Address(host, int(port))


def existing_file(text: str) -> Path:
    """Parse the path of a file that is there."""
    path = Path(text)
    if not path.is_file():
        raise ValueError("is not a file")
    return path


def file_of(what: str, read: Callable[[Path], object]) -> Callable[[str], Path]:
    """Parse the path of a file that can be read as what it is to be, so that what is wrong in it is told with all other problems. Of
    what is in it nothing is told: it may be a key."""

    def parse(text: str) -> Path:
        path = existing_file(text)
        try:
            read(path)
        except Exception:
            raise ValueError(f"does not hold {what}") from None
        return path

    return parse


def existing_folder(text: str) -> Path:
    """Parse the path of a folder that is there."""
    path = Path(text)
    if not path.is_dir():
        raise ValueError("is not a folder")
    return path


def one_of(*choices: str) -> Callable[[str], str]:
    """Parse one of a few words."""

    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"is not one of {', '.join(choices)}")
        return text

    return parse


def number(low: float, high: float) -> Callable[[str], float]:
    """Parse a number within bounds."""

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
    """Parse a whole number within bounds."""

    def parse(text: str) -> int:
        if not text.isdigit() or not low <= int(text) <= high:
            raise ValueError(f"is not a whole number between {low} and {high}")
        return int(text)

    return parse


def postgres_url(text: str) -> str:
    """Parse a PostgreSQL URL."""
    if not text.startswith("postgresql://"):
        raise ValueError("is not a postgresql:// URL")
    return text


def redis_url(text: str) -> str:
    """Parse a Redis URL."""
    if not text.startswith(("redis://", "rediss://", "unix://")):
        raise ValueError("is not a redis:// URL")
    return text


def http_url(text: str) -> str:
    """Parse an HTTP URL."""
    if not text.startswith(("http://", "https://")):
        raise ValueError("is not an http:// or https:// URL")
    return text


@dataclass(frozen=True, kw_only=True)
class ProcessSettings:
    """What every process of the mesh needs to know."""

    listen: Address = setting("LISTEN", address)
    ops_listen: Address = setting("OPS_LISTEN", address)
    tls_cert: Path = setting("TLS_CERT", existing_file)
    tls_key: Path = setting("TLS_KEY", existing_file)
    tls_ca: Path = setting("TLS_CA", existing_file)
    trust_domain: str = setting("TRUST_DOMAIN", str, default="toolmesh.local")
    environment: str = setting("ENVIRONMENT", one_of("local", "dev", "staging", "prod"), default="local")
    instance_id: str = setting("INSTANCE_ID", str, default="")
    log_level: str = setting("LOG_LEVEL", one_of("debug", "info", "warning", "error"), default="info")
    drain_delay_seconds: float = setting("DRAIN_DELAY_SECONDS", number(0, 60), default=0.2)
    drain_seconds: float = setting("DRAIN_SECONDS", number(0, 600), default=10.0)
    otlp_endpoint: str = setting("OTLP_ENDPOINT", http_url, default="")
    trace_sample_ratio: float = setting("TRACE_SAMPLE_RATIO", number(0, 1), default=0.01)
    issuer: str = setting("ISSUER", http_url, default="https://authz.toolmesh.local")
    audience: str = setting("AUDIENCE", str, default="toolmesh")
    max_concurrent_calls: int = setting("MAX_CONCURRENT_CALLS", whole(1, 100_000), default=1000)
