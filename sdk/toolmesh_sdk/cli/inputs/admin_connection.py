"""Opens connections for commands: as the caller through the edge, or as the operator of a local mesh."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from toolmesh_sdk._wire.retry import COMMAND_LINE
from toolmesh_sdk.cli.failures import no_mesh_error
from toolmesh_sdk.cli.inputs.target import START, Target, open_client

if TYPE_CHECKING:
    from toolmesh_sdk._wire.transport import Transport


@contextmanager
def as_caller(target: Target) -> Iterator[Transport]:
    """Connect through the edge, with the given token or with one that the local mesh mints for its user."""
    with open_client(target) as client:
        yield client.transport


@contextmanager
def as_admin(target: Target, *, service: str = "registry") -> Iterator[Transport]:
    """Connect with authority over a service: with the given token, else with the local operator's certificate."""
    if target.url or target.token is not None:
        with as_caller(target) as transport:
            yield transport
        return
    transport = _operator(target.require_runtime(), target.timeout, service)
    try:
        yield transport
    finally:
        transport.close()


def _operator(runtime: dict[str, Any], timeout: float, service: str) -> Transport:
    from toolmesh_sdk._wire.connection import Tls
    from toolmesh_sdk._wire.trace import SAMPLED, new_traceparent
    from toolmesh_sdk._wire.transport import Options, Transport
    from toolmesh_sdk.admin import service_address

    try:
        identity = runtime["operator"]
        tls = Tls(runtime["ca"], identity["cert"], identity["key"], server_name=service)
        options = Options(timeout=timeout, retry=COMMAND_LINE, traceparent=lambda: new_traceparent(SAMPLED))
        return Transport(service_address(runtime, service), tls, options)
    except (KeyError, OSError) as error:
        raise no_mesh_error(f"The operator's certificate of the local mesh cannot be used ({error}).", START) from None
