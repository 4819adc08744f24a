"""`toolmesh connect http`: offers one HTTP endpoint as a tool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolmesh_sdk.cli.commands.upstreams.adding import Id, SlowCallTime, add_and_wait, default_id, print_connected
from toolmesh_sdk.cli.commands.upstreams.endpoint_document import METHODS, EndpointOptions, endpoint_document
from toolmesh_sdk.cli.commands.upstreams.secret_options import header_secrets
from toolmesh_sdk.cli.failures import report_errors
from toolmesh_sdk.cli.inputs.target import Target
from toolmesh_sdk.cli.inputs.target_options import add_operator_options

if TYPE_CHECKING:
    from toolmesh.registry.v1 import upstream_pb2 as upb

_WAIT_SECONDS = 60.0
Names = list[str] | None


@report_errors
@add_operator_options(_WAIT_SECONDS)
def http(
    address: Annotated[str, typer.Argument(metavar="URL", help="Such as https://api.example.com/orders/{order_id}.")],
    method: Annotated[str, typer.Option("--method", "-X", help=f"{', '.join(METHODS)}.")] = "get",
    name: Annotated[str, typer.Option("--name", help="The tool's name; else by method and path.")] = "",
    description: Annotated[str, typer.Option("--description", help="What it does, for models and people.")] = "",
    arguments: Annotated[Path | None, typer.Option("--input", help="The JSON Schema of its arguments, a file.")] = None,
    result: Annotated[Path | None, typer.Option("--output", help="The JSON Schema of its result, a file.")] = None,
    query: Annotated[Names, typer.Option("--query", help="An argument that travels in the query; repeatable.")] = None,
    header: Annotated[Names, typer.Option("--header", help="An argument that is a header; repeatable.")] = None,
    secret: Annotated[Names, typer.Option("--secret", help="HEADER=NAME of a stored secret; repeatable.")] = None,
    failover: Annotated[
        Names, typer.Option("--failover", help="Another origin, https://HOST; repeatable, in order.")
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="It changes nothing, whatever its method.")] = False,
    slow_call_time: SlowCallTime = None,
    upstream_id: Id = "",
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Connect one HTTP endpoint.

    Arguments in the path, {name}, are required. Others travel in the query with get, head and delete, and else
    together as the argument `body`, the JSON body; --query and --header place single ones. Without --input they
    are texts. GET and HEAD read; calls of every other method need approval, unless --read-only is given.

    \b
    Example:
      toolmesh connect http 'https://api.example.com/orders/{order_id}' --name get_order --secret authorization=crm_key
      toolmesh connect http https://api.example.com/orders -X post --name place_order --input order.json
    """
    from toolmesh.registry.v1 import upstream_pb2 as upb

    secrets = header_secrets(secret or [])
    options = EndpointOptions(
        url=address,
        method=method.lower(),
        name=name,
        description=description,
        arguments=_schema(arguments, "--input"),
        result=_schema(result, "--output"),
        query=tuple(query or ()),
        headers=tuple(header or ()),
        secret_headers=tuple(each.key for each in secrets),
    )
    try:
        document = endpoint_document(options)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="URL") from None
    endpoint = upb.OpenApiEndpoint(
        content=json.dumps(document, separators=(",", ":")).encode(),
        server=options.origin,
        secrets=[upb.SchemeSecret(scheme=each.key, secret=each.secret) for each in secrets],
        failover_origins=failover or [],
    )
    overlays = [options.native_name] if read_only else []
    named = upstream_id or default_id(address)
    upstream = add_and_wait(named, _endpoint(endpoint), overlays, target, slow_call_time)
    print_connected(upstream, as_json=as_json)


def _endpoint(openapi: upb.OpenApiEndpoint) -> upb.UpstreamEndpoint:
    from toolmesh.registry.v1 import upstream_pb2 as upb

    return upb.UpstreamEndpoint(openapi=openapi)


def _schema(path: Path | None, option: str) -> dict[str, Any] | None:
    if path is None:
        return None
    try:
        schema = json.loads(path.read_bytes())
    except OSError as error:
        raise typer.BadParameter(f"{path}: {error.strerror}", param_hint=option) from None
    except ValueError:
        schema = None
    if not isinstance(schema, dict):
        raise typer.BadParameter(f"{path} is no JSON Schema", param_hint=option)
    return schema
