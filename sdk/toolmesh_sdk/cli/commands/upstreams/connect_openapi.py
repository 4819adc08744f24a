"""`toolmesh connect openapi`: offers the operations of a REST API."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolmesh_sdk.cli.commands.upstreams.adding import (
    Id,
    ReadOnly,
    SlowCallTime,
    add_and_wait,
    default_id,
    print_connected,
)
from toolmesh_sdk.cli.failures import report_errors
from toolmesh_sdk.cli.inputs.target import Target
from toolmesh_sdk.cli.inputs.target_options import add_operator_options

if TYPE_CHECKING:
    from toolmesh.registry.v1 import upstream_pb2 as upb

# A document of a thousand operations takes a while to register.
WAIT_SECONDS = 300.0
_SECRET = re.compile(r"(.+)=(?:secret://)?([a-z][a-z0-9_-]{0,62})")
_LONGEST_STEM = 60


@report_errors
@add_operator_options(WAIT_SECONDS)
def openapi(
    document: Annotated[str, typer.Argument(metavar="FILE|URL", help="The document, as JSON.")],
    upstream_id: Id = "",
    server: Annotated[str, typer.Option("--server", help="The API's address, instead of the document's.")] = "",
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Operations or tags, such as 'repos/*'; repeatable.")
    ] = None,
    secret: Annotated[
        list[str] | None, typer.Option("--secret", help="SCHEME=NAME of a stored secret; repeatable.")
    ] = None,
    failover: Annotated[
        list[str] | None, typer.Option("--failover", help="Another origin, https://HOST; repeatable, in order.")
    ] = None,
    read_only: ReadOnly = None,
    slow_call_time: SlowCallTime = None,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Connect a REST API by its OpenAPI document.

    Every operation becomes a tool, or is refused with the reason. GET and HEAD read; calls of every other
    method need approval, unless --read-only names the operation. Credentials are secrets of the mesh, one
    for each security scheme of the document.

    \b
    Example:
      toolmesh connect openapi https://api.example.com/openapi.json
      toolmesh connect openapi petstore.json --only 'pets/*' --server https://pets.example.com/v1
      toolmesh connect openapi crm.json --secret bearerAuth=crm_key
      toolmesh connect openapi crm.json --failover https://crm-eu.example.com
    """
    from toolmesh.registry.v1 import upstream_pb2 as upb

    endpoint = upb.OpenApiEndpoint(
        server=server, operations=only or [], secrets=_secrets(secret or []), failover_origins=failover or []
    )
    if document.startswith(("https://", "http://")):
        endpoint.url = document
        named = default_id(document)
    else:
        endpoint.path = str(_local_file(document, target))
        named = default_id(Path(document).name.partition(".")[0][:_LONGEST_STEM])
    reached = upb.UpstreamEndpoint(openapi=endpoint)
    upstream = add_and_wait(upstream_id or named, reached, read_only or [], target, slow_call_time)
    print_connected(upstream, as_json=as_json)


def _local_file(text: str, target: Target) -> Path:
    if not target.is_local():
        advice = "a file is read on the executors' machines; connect a URL, or run this on the machine of a local mesh"
        raise typer.BadParameter(advice, param_hint="FILE")
    path = Path(text).expanduser().resolve()
    if not path.is_file():
        raise typer.BadParameter(f"there is no file {text}", param_hint="FILE")
    return path


def _secrets(texts: list[str]) -> list[upb.SchemeSecret]:
    from toolmesh.registry.v1 import upstream_pb2 as upb

    matches = [_SECRET.fullmatch(text) for text in texts]
    if not all(matches):
        advice = "is not SCHEME=NAME, with the name of `toolmesh secrets set NAME`"
        raise typer.BadParameter(advice, param_hint="--secret")
    return [upb.SchemeSecret(scheme=match[1], secret=f"secret://{match[2]}") for match in matches if match is not None]
