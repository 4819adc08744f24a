"""`toolmesh connect grpc`: offers the methods of a gRPC server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from toolmesh_sdk.cli.commands.upstreams.adding import (
    Id,
    ReadOnly,
    SlowCallTime,
    add_and_wait,
    default_id,
    print_connected,
)
from toolmesh_sdk.cli.commands.upstreams.secret_options import metadata_secrets
from toolmesh_sdk.cli.failures import report_errors
from toolmesh_sdk.cli.inputs.target import Target
from toolmesh_sdk.cli.inputs.target_options import add_operator_options

WAIT_SECONDS = 120.0
_ADDRESS = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}")


@report_errors
@add_operator_options(WAIT_SECONDS)
def grpc(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="The server.")],
    upstream_id: Id = "",
    plaintext: Annotated[bool, typer.Option("--plaintext", help="Connect without TLS.")] = False,
    descriptor_set: Annotated[
        Path | None, typer.Option("--descriptor-set", help="Its descriptors, if it has no reflection.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Services or methods, such as 'acme.v1.*'; repeatable.")
    ] = None,
    secret: Annotated[
        list[str] | None, typer.Option("--secret", help="KEY=NAME of a stored secret; repeatable.")
    ] = None,
    server_ca: Annotated[Path | None, typer.Option("--server-ca", help="The CA of the server, a PEM file.")] = None,
    client_cert: Annotated[
        Path | None, typer.Option("--client-cert", help="Certificate and key for the server, a PEM file.")
    ] = None,
    read_only: ReadOnly = None,
    slow_call_time: SlowCallTime = None,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Connect a gRPC server by its descriptors.

    Every unary or server-streaming method becomes a tool. A method whose idempotency_level is
    NO_SIDE_EFFECTS reads; calls of every other one need approval, unless --read-only names it. The secret of
    the key authorization is sent as a bearer token.

    \b
    Example:
      toolmesh connect grpc orders.example.com:443 --secret authorization=orders_key
      toolmesh connect grpc 10.0.0.7:50051 --plaintext --only 'acme.orders.v1.*'
      toolmesh connect grpc orders.example.com:443 --descriptor-set orders.binpb
    """
    from toolmesh.registry.v1 import upstream_pb2 as upb

    if not _ADDRESS.fullmatch(address):
        raise typer.BadParameter("is not HOST:PORT", param_hint="HOST:PORT")
    endpoint = upb.GrpcEndpoint(
        address=address,
        plaintext=plaintext,
        descriptor_set=_file(descriptor_set, "--descriptor-set", target),
        methods=only or [],
        secrets=metadata_secrets(secret or []),
        ca_file=_file(server_ca, "--server-ca", target),
        certificate_file=_file(client_cert, "--client-cert", target),
    )
    named = upstream_id or default_id(address.rpartition(":")[0])
    upstream = add_and_wait(named, upb.UpstreamEndpoint(grpc=endpoint), read_only or [], target, slow_call_time)
    print_connected(upstream, as_json=as_json)


def _file(path: Path | None, option: str, target: Target) -> str:
    if path is None:
        return ""
    if not target.is_local():
        advice = "a file is read on the executors' machines; run this on the machine of a local mesh"
        raise typer.BadParameter(advice, param_hint=option)
    found = path.expanduser().resolve()
    if not found.is_file():
        raise typer.BadParameter(f"there is no file {path}", param_hint=option)
    return str(found)
