"""Adds an upstream, waits for its tools, and prints what came in: shared by the commands of `toolmesh connect`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from toolmesh_sdk.cli.exits import FAILED
from toolmesh_sdk.cli.inputs.admin_connection import as_operator
from toolmesh_sdk.cli.inputs.target import Target
from toolmesh_sdk.cli.inputs.timestamps import check_short_time, parse_milliseconds
from toolmesh_sdk.cli.views import output
from toolmesh_sdk.cli.views.upstream_report import is_ready, print_upstream, upstream_document

if TYPE_CHECKING:
    from toolmesh.registry.v1 import upstream_pb2 as upb
    from toolmesh.registry.v1 import upstream_service_pb2 as pb

_PREFIXES = ("pypi:", "npm:", "https://", "http://")
_ID_PREFIXES = re.compile(r"^(mcp-server-|server-|mcp-)|(-mcp-server|-mcp|-server)$")

Id = Annotated[str, typer.Option("--id", help="The upstream's id and its tools' namespace.")]
ReadOnly = Annotated[list[str] | None, typer.Option("--read-only", help="A tool that changes nothing; repeatable.")]

SlowCallTime = Annotated[
    str | None,
    typer.Option(
        "--slow-call-time",
        help="Longer calls open its circuit as failures do: 800ms, 2s, 1m.",
        # Before anything is installed.
        callback=check_short_time,
    ),
]


def print_connected(upstream: upb.Upstream, *, as_json: bool) -> None:
    """Print an upstream. Exits with a failure if it does not answer."""
    if as_json:
        output.print_json({"upstream": upstream_document(upstream)})
    else:
        print_upstream(upstream)
    if not is_ready(upstream):
        raise typer.Exit(FAILED)


def add_and_wait(
    upstream_id: str,
    endpoint: upb.UpstreamEndpoint,
    read_only: list[str],
    target: Target,
    slow_call_time: str | None = None,
) -> upb.Upstream:
    """Add an upstream and wait until the mesh has tried it. `slow_call_time` is the text of the option."""
    from toolmesh.registry.v1 import tool_manifest_pb2, upstream_pb2
    from toolmesh.registry.v1 import upstream_service_pb2 as pb
    from toolmesh.registry.v1.upstream_service_pb2_grpc import UpstreamServiceStub

    from toolmesh_sdk.cli.commands.upstreams.waiting import wait_observed

    overlays = [
        upstream_pb2.ToolOverlay(native_name=name, mutation_class=tool_manifest_pb2.MUTATION_CLASS_READ_ONLY)
        for name in read_only
    ]
    request = pb.AddUpstreamRequest(upstream_id=upstream_id, endpoint=endpoint, overlays=overlays)
    if slow_call_time is not None:
        request.slow_call_time.FromMilliseconds(parse_milliseconds(slow_call_time))
    with as_operator(target) as transport:
        stub = UpstreamServiceStub(transport.channel)
        added: pb.AddUpstreamResponse = transport.unary(stub.AddUpstream, request, None, repeatable=True)
        return wait_observed(transport, added.upstream, target.timeout)


def default_id(source: str) -> str:
    """Return an id: `pypi:mcp-server-git==1.0` is `git`, and `https://mcp.example.com/mcp` is `mcp-example-com`."""
    text = source.lower()
    for prefix in _PREFIXES:
        text = text.removeprefix(prefix)
    if source.startswith(("https://", "http://")):
        name = text.partition("/")[0].partition(":")[0]
    else:
        name = _ID_PREFIXES.sub("", re.split(r"[=@\[]", text.rpartition("/")[2] or text)[0])
    made = re.sub(r"[^a-z0-9]+", "-", name).strip("-")
    return made if re.fullmatch(r"[a-z][a-z0-9-]{1,62}", made) else f"upstream-{made}"[:63].rstrip("-")
