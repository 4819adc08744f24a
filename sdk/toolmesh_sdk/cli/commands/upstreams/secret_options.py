"""Reads `--secret` of the commands of `toolmesh connect`: which stored secret goes where. Values are never given."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import typer

from toolmesh_sdk.cli.installs.package import InstallError

if TYPE_CHECKING:
    from toolmesh.registry.v1 import upstream_pb2 as upb

_AUTHORIZATION = "authorization"
_METADATA = re.compile(r"([a-z0-9_.-]{1,64})=(?:secret://)?([a-z][a-z0-9_-]{0,62})")
_HEADER = re.compile(r"([A-Za-z0-9_-]{1,64})=(?:secret://)?([a-z][a-z0-9_-]{0,62})")
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,127})=(?:secret://)?([a-z][a-z0-9_-]{0,62})")


def metadata_secrets(texts: list[str]) -> list[upb.MetadataSecret]:
    """Return the secrets of a gRPC server. That of the key authorization is a bearer token."""
    return [_metadata(key, name) for key, name in _pairs(texts, _METADATA, "KEY")]


def header_secrets(texts: list[str]) -> list[upb.MetadataSecret]:
    """Return the secrets of a server over HTTP. That of the header authorization is a bearer token."""
    return [_metadata(key.lower(), name) for key, name in _pairs(texts, _HEADER, "HEADER")]


def environment_secrets(texts: list[str]) -> list[upb.EnvironmentSecret]:
    """Return the secrets of a confined server."""
    from toolmesh.registry.v1 import upstream_pb2 as upb

    pairs = _pairs(texts, _VARIABLE, "VARIABLE")
    return [upb.EnvironmentSecret(variable=variable, secret=f"secret://{name}") for variable, name in pairs]


def file_secrets(entry: dict[str, Any], member: str) -> list[str]:
    """Return the secrets of one member of an entry of `mcpServers`, as texts of `--secret`. Raises InstallError."""
    values = entry.get(member) or {}
    texts = []
    for name, value in values.items() if isinstance(values, dict) else ():
        reference = str(value)
        if name.lower() == _AUTHORIZATION:
            reference = reference.removeprefix("Bearer ")
        if not reference.startswith("secret://"):
            raise InstallError(
                f"its {member} may hold secrets; keep them with `toolmesh secrets set`, as secret://NAME"
            )
        texts.append(f"{name}={reference}")
    return texts


def _metadata(key: str, name: str) -> upb.MetadataSecret:
    from toolmesh.registry.v1 import upstream_pb2 as upb

    prefix = "Bearer " if key == _AUTHORIZATION else ""
    return upb.MetadataSecret(key=key, secret=f"secret://{name}", prefix=prefix)


def _pairs(texts: list[str], pattern: re.Pattern[str], place: str) -> list[tuple[str, str]]:
    matches = [pattern.fullmatch(text) for text in texts]
    if not all(matches):
        advice = f"is not {place}=NAME, with the name of `toolmesh secrets set NAME`"
        raise typer.BadParameter(advice, param_hint="--secret")
    return [(match[1], match[2]) for match in matches if match is not None]
