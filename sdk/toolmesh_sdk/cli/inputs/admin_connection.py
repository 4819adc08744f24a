"""Opens connections for commands: as the caller through the edge, or as the operator of a mesh."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from toolmesh_sdk._wire.retry import COMMAND_LINE
from toolmesh_sdk.cli.failures import no_mesh_error
from toolmesh_sdk.cli.inputs.login_key import proof_key_for
from toolmesh_sdk.cli.inputs.target import START, Target, client_tls, open_client

if TYPE_CHECKING:
    from toolmesh_sdk._wire.connection import Tls
    from toolmesh_sdk._wire.transport import Transport


@contextmanager
def as_caller(target: Target) -> Iterator[Transport]:
    """Connect through the edge, with the given token or with one that the local mesh mints for its user."""
    with open_client(target) as client:
        yield client.transport


@contextmanager
def as_admin(target: Target, *, service: str = "registry") -> Iterator[Transport]:
    """Connect with authority over a service: with --cert, else the token, else the local operator's certificate."""
    if target.cert is None and (target.token is not None or not target.is_local()):
        with as_caller(target) as transport:
            yield transport
        return
    with as_operator(target, service=service) as transport:
        yield transport


@contextmanager
def as_operator(target: Target, *, service: str = "registry") -> Iterator[Transport]:
    """Connect with the operator's certificate: --cert, else that of the local mesh."""
    if target.cert is None and not target.is_local():
        raise typer.BadParameter(
            "only the operator's certificate may do this: add --cert and --key, or a context that has them",
            param_hint="--cert",
        )
    transport = _operator(target, service)
    try:
        yield transport
    finally:
        transport.close()


def _operator(target: Target, service: str) -> Transport:
    from toolmesh_sdk._wire.trace import SAMPLED, new_traceparent
    from toolmesh_sdk._wire.transport import ClientOptions, Transport

    address, tls = _service(target, service)
    token = target.token or ""
    options = ClientOptions(
        token=token,
        timeout=target.timeout,
        retry=COMMAND_LINE,
        traceparent=lambda: new_traceparent(SAMPLED),
        proof_key=proof_key_for(token) if token else None,
    )
    try:
        return Transport(address, tls, options)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--url") from None
    except OSError as error:
        raise no_mesh_error(f"The operator's certificate cannot be read ({error}).", START) from None


def _service(target: Target, service: str) -> tuple[str, Tls]:
    if target.cert is not None:
        return target.service_url(service), client_tls(target)
    return _local_service(target.require_runtime(), service)


def _local_service(runtime: dict[str, Any], service: str) -> tuple[str, Tls]:
    from toolmesh_sdk._wire.connection import Tls
    from toolmesh_sdk.admin import service_address

    try:
        identity = runtime["operator"]
        tls = Tls(runtime["ca"], identity["cert"], identity["key"], server_name=service)
        return service_address(runtime, service), tls
    except KeyError as error:
        raise no_mesh_error(f"The runtime document of the local mesh lacks {error}.", START) from None
