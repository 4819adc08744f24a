"""Reads the settings of a process from the environment, once: a frozen object that prints without its secrets.

A process with an unusable value would fail later and further from the cause. Every malformed, missing or unknown
TOOLMESH_ variable is reported at once, and the process does not start.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import Field, FilePath, ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from libs.common.runtime.setting_types import Address, HostPort, HttpUrl, Origins

__all__ = [
    "Address",
    "EnvironmentSettings",
    "ProcessSettings",
    "SettingsError",
    "describe",
    "is_secret",
    "load",
    "variable_of",
    "variables",
]

PREFIX = "TOOLMESH_"
# Variables of the local runner and the client. A service's environment may hold them; the service ignores them.
FOREIGN = {
    "TOOLMESH_STATE",
    "TOOLMESH_TOKEN",
    "TOOLMESH_URL",
    "TOOLMESH_CA",
    "TOOLMESH_CERT",
    "TOOLMESH_CERT_KEY",
    "TOOLMESH_CONTEXT",
    "TOOLMESH_KEY_SECRET",
    "TOOLMESH_ACCESS_TOKEN",
    "TOOLMESH_AUDIT_KEY",
    "TOOLMESH_DEBUG",
}
_FILE = "_FILE"


class SettingsError(Exception):
    """Lists every problem of a process's settings, each with the variable's name."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


class EnvironmentSettings(BaseSettings):
    """Settings that `load` reads from TOOLMESH_ variables."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, enable_decoding=False, frozen=True, validate_default=False, hide_input_in_errors=True
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Construct settings from arguments only; `load` reads the environment."""
        return (init_settings,)


class ProcessSettings(EnvironmentSettings):
    """The settings that every process of the mesh has."""

    listen: HostPort = Field(description="Address that the service listens on.")
    ops_listen: HostPort = Field(description="Address for health checks and metrics.")
    tls_cert: FilePath = Field(description="Certificate of this process, in PEM.")
    tls_key: FilePath = Field(description="Private key of the certificate, in PEM.")
    tls_ca: FilePath = Field(description="Certificate authorities that peers are verified with, in PEM.")
    trust_domain: str = Field("toolmesh.local", description="SPIFFE trust domain of the mesh's certificates.")
    environment: Literal["local", "dev", "staging", "prod"] = Field(
        "local", description="Stage of the deployment. Policies can read it."
    )
    instance_id: str = Field("", description="Name of this replica. Empty: host name and process id.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Lowest level that is logged.")
    drain_delay_seconds: float = Field(
        0.2, ge=0, le=60, description="Time between SIGTERM and the closing of the listener, for load balancers."
    )
    drain_seconds: float = Field(10.0, ge=0, le=600, description="Time that accepted calls have to finish.")
    otlp_endpoint: HttpUrl = Field("", description="OTLP collector that spans are sent to. Empty: no spans.")
    trace_sample_ratio: float = Field(0.01, ge=0, le=1, description="Share of new traces that are sampled.")
    issuer: HttpUrl = Field("https://authz.toolmesh.local", description="Issuer of the mesh's tokens.")
    audience: str = Field("toolmesh", description="Audience that tokens must name.")
    max_token_lifetime: int = Field(
        86_400, ge=1, le=366 * 86_400, description="Longest lifetime of a token, in seconds. The same in every process."
    )
    public_origins: Origins = Field(
        (), description="Origins that callers reach the edge by. A DPoP proof must name one. Empty: none is accepted."
    )
    max_concurrent_calls: int = Field(
        1000, ge=1, le=100_000, description="Calls that the process works on at once. Further calls are refused."
    )


S = TypeVar("S", bound=EnvironmentSettings)


def load(cls: type[S], environ: Mapping[str, str] | None = None) -> S:
    """Build the settings of a process. Raises SettingsError with every problem."""
    environ = os.environ if environ is None else environ
    own = {name: value for name, value in environ.items() if name.startswith(PREFIX)}
    problems = [f"{name} is not a setting of this process" for name in sorted(own.keys() - variables(cls) - FOREIGN)]
    values = {name: value for name, value in own.items() if value}
    problems += _read_secret_files(cls, values)
    source = EnvSettingsSource(cls)
    source.env_vars = {name.lower(): value for name, value in values.items()}
    try:
        settings = cls(**source())
    except ValidationError as error:
        problems += _problems(cls, error, values)
    if problems:
        raise SettingsError(problems)
    return settings


def describe(settings: EnvironmentSettings) -> dict[str, str]:
    """Return every setting as text, secrets as `***`."""
    shown = {}
    for field in type(settings).model_fields:
        value = getattr(settings, field)
        shown[variable_of(field)] = "***" if is_secret(type(settings), field) and value else str(value)
    return shown


def variable_of(field: str) -> str:
    """Return the environment variable of a field."""
    return PREFIX + field.upper()


def is_secret(cls: type[EnvironmentSettings], field: str) -> bool:
    """Report whether a field's value is masked wherever settings are shown."""
    return not cls.model_fields[field].repr


def variables(cls: type[EnvironmentSettings]) -> set[str]:
    """Return the names of all variables that a process reads."""
    names = {variable_of(field) for field in cls.model_fields}
    return names | {variable_of(field) + _FILE for field in cls.model_fields if is_secret(cls, field)}


def _read_secret_files(cls: type[EnvironmentSettings], values: dict[str, str]) -> list[str]:
    """Replace each `_FILE` variable by its file's content; return the problems."""
    problems = []
    for name in (variable_of(field) for field in cls.model_fields if is_secret(cls, field)):
        path = values.get(name + _FILE)
        if path and name in values:
            problems.append(f"{name} and {name}{_FILE} are both set")
        elif path:
            try:
                values[name] = Path(path).read_text().strip()
            except (OSError, UnicodeDecodeError):
                problems.append(f"{name}{_FILE}: {path!r} is not a readable text file")
    return problems


def _problems(cls: type[EnvironmentSettings], error: ValidationError, values: Mapping[str, str]) -> Iterator[str]:
    for item in error.errors():
        reason = str(item.get("ctx", {}).get("error", item["msg"]))
        if not item["loc"]:  # a rule between several settings, which names them
            yield reason
            continue
        field = str(item["loc"][0])
        name = variable_of(field)
        if item["type"] != "missing":
            shown = "its value" if is_secret(cls, field) else repr(values[name][:80])
            yield f"{name}: {shown}: {reason}"
        elif name + _FILE not in values:  # an unreadable file is a problem of its own
            yield f"{name} is required and not set"
