"""How commands that change tools and policies reach their service: as the operator of a local mesh, or as the holder of a token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from toolmesh_sdk.cli.failures import no_mesh
from toolmesh_sdk.cli.inputs.target import START, Place, open_client

if TYPE_CHECKING:
    from toolmesh_sdk._wire.transport import Transport


@contextmanager
def as_caller(place: Place, timeout: float) -> Iterator[Transport]:
    """Connect through the edge, with the token that was given or the one of the person at this machine."""
    with open_client(place, timeout) as client:
        yield client.transport


@contextmanager
def as_steward(place: Place, timeout: float, *, service: str = "registry") -> Iterator[Transport]:
    """Connect with authority over tools or policies: a token that was given decides, else the local mesh's operator does."""
    if place.url or place.token is not None:
        with as_caller(place, timeout) as transport:
            yield transport
        return
    transport = _operator(place.running(), timeout, service)
    try:
        yield transport
    finally:
        transport.close()


def version_name(name: str) -> str:
    """Return the resource name of a version that was written as `echo@1.2.0`; refuse a name without a version."""
    if "/versions/" in name:
        return name
    tool, found, version = name.partition("@")
    if not found or not version:
        raise typer.BadParameter(f"say which version: {name}@1.0.0", param_hint="NAME")
    return f"tools/{tool if '.' in tool else 'core.' + tool}/versions/{version}"


def tool_or_version(name: str) -> str:
    """Return a reference to a whole tool as it is, and `echo@1.2.0` as a version's resource name."""
    return version_name(name) if "@" in name else name


def short(name: str) -> str:
    """Return a resource name as people write it."""
    return name.removeprefix("tools/").replace("/versions/", "@")


def _operator(runtime: dict[str, Any], timeout: float, service: str) -> Transport:
    from toolmesh_sdk._wire.connection import Tls
    from toolmesh_sdk._wire.trace import SAMPLED, new_traceparent
    from toolmesh_sdk._wire.transport import Options, Transport
    from toolmesh_sdk.admin import service_address

    try:
        identity = runtime["operator"]
        tls = Tls(runtime["ca"], identity["cert"], identity["key"], server_name=service)
        options = Options(timeout=timeout, traceparent=lambda: new_traceparent(SAMPLED))
        return Transport(service_address(runtime, service), tls, options)
    except (KeyError, OSError) as error:
        raise no_mesh(f"The operator's certificate of the local mesh cannot be used ({error}).", START) from None
