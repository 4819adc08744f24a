"""`toolmesh upstreams`: shows and changes the servers whose tools the mesh offers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from toolmesh_sdk.cli.exits import FAILED
from toolmesh_sdk.cli.failures import report_errors
from toolmesh_sdk.cli.inputs.admin_connection import as_operator
from toolmesh_sdk.cli.inputs.target import Target
from toolmesh_sdk.cli.inputs.target_options import add_operator_options
from toolmesh_sdk.cli.views import output
from toolmesh_sdk.cli.views.upstream_report import (
    changed_tools,
    is_ready,
    print_changes,
    print_times,
    print_upstream,
    print_upstreams,
    upstream_document,
)

if TYPE_CHECKING:
    from toolmesh.registry.v1 import upstream_pb2 as upb

    from toolmesh_sdk._wire.transport import Transport

app = typer.Typer(help="Show and change the servers that are connected.", no_args_is_help=True)
Id = Annotated[str, typer.Argument(metavar="ID", help="The upstream, such as git.")]
_WAIT_SECONDS = 120.0


@app.command("list")
@report_errors
@add_operator_options()
def list_upstreams(*, target: Target, as_json: bool) -> None:
    """List upstreams, their state and their tools.

    \b
    Example:
      toolmesh upstreams list
    """
    from toolmesh.registry.v1 import upstream_service_pb2 as pb
    from toolmesh.registry.v1.upstream_service_pb2_grpc import UpstreamServiceStub

    found: list[upb.Upstream] = []
    request = pb.ListUpstreamsRequest()
    with as_operator(target) as transport:
        stub = UpstreamServiceStub(transport.channel)
        while True:
            page = transport.unary(stub.ListUpstreams, request, None, repeatable=True)
            found.extend(page.upstreams)
            request.page_token = page.next_page_token
            if not page.next_page_token:
                break
    if as_json:
        output.print_json({"upstreams": [upstream_document(each) for each in found]})
    else:
        print_upstreams(found)


@app.command()
@report_errors
@add_operator_options()
def show(upstream: Id, *, target: Target, as_json: bool) -> None:
    """Show an upstream, its tools, changes and circuits.

    Circuits are those of its endpoints, as all executors share them: whether calls pass, what failed of late, which
    rates the service limits, and the last changes. An executor is asked for them.

    \b
    Example:
      toolmesh upstreams show git
    """
    from toolmesh_sdk.cli.commands.upstreams.circuits import read_circuits
    from toolmesh_sdk.cli.views.circuit_report import circuit_documents, print_circuits
    from toolmesh_sdk.errors import ToolmeshError

    with as_operator(target) as transport:
        found = _get(transport, upstream)
    try:
        circuits = read_circuits(target, found.name.removeprefix("upstreams/"))
    except ToolmeshError as error:
        # The registry's part is worth showing while no executor answers.
        output.err().print(output.text(f"the circuits are not known: the executor answers {error.reason.name}"))
        circuits = None
    if as_json:
        shown = None if circuits is None else circuit_documents(circuits)
        output.print_json({"upstream": upstream_document(found), "circuits": shown})
        return
    _print(found, as_json)
    print_times(found)
    print_circuits(circuits or ())


@app.command()
@report_errors
@add_operator_options(_WAIT_SECONDS)
def refresh(upstream: Id, *, target: Target, as_json: bool) -> None:
    """Discover the tools of an upstream again.

    Tools that were refused are examined again, too.

    \b
    Example:
      toolmesh upstreams refresh git
    """
    from toolmesh.registry.v1 import upstream_service_pb2 as pb
    from toolmesh.registry.v1.upstream_service_pb2_grpc import UpstreamServiceStub

    from toolmesh_sdk.cli.commands.upstreams.waiting import wait_observed

    with as_operator(target) as transport:
        stub = UpstreamServiceStub(transport.channel)
        request = pb.RefreshUpstreamRequest(name=_resource_name(upstream))
        refreshed = transport.unary(stub.RefreshUpstream, request, None, repeatable=True).upstream
        found = wait_observed(transport, refreshed, target.timeout)
    _print(found, as_json)
    if not is_ready(found):
        raise typer.Exit(FAILED)


@app.command()
@report_errors
@add_operator_options()
def accept(
    upstream: Id,
    tools: Annotated[
        list[str] | None, typer.Argument(metavar="[TOOL]...", help="Native names; all without any.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Accept without a question.")] = False,
    reason: Annotated[str, typer.Option("--reason", "-r", help="The reason; recorded.")] = "",
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Accept changed definitions, as they are shown.

    Each becomes a new version of its tool. A definition that changes meanwhile is not accepted.

    \b
    Example:
      toolmesh upstreams accept git git_log --yes
    """
    from toolmesh.registry.v1 import upstream_service_pb2 as pb
    from toolmesh.registry.v1.upstream_service_pb2_grpc import UpstreamServiceStub

    with as_operator(target) as transport:
        found = _get(transport, upstream)
        waiting = {tool.native_name: tool for tool in changed_tools(found)}
        unknown = sorted(set(tools or ()) - waiting.keys())
        if unknown or not waiting:
            raise typer.BadParameter(f"no change of {', '.join(unknown) or upstream} waits", param_hint="TOOL")
        chosen = [waiting[name] for name in (tools or waiting)]
        if not yes:
            print_changes(chosen)
            typer.confirm("Accept these definitions?", abort=True, err=True)
        changes = [pb.AcceptedChange(native_name=tool.native_name, digest=tool.pending_digest) for tool in chosen]
        request = pb.AcceptChangesRequest(name=found.name, changes=changes, reason=reason)
        stub = UpstreamServiceStub(transport.channel)
        accepted = transport.unary(stub.AcceptChanges, request, None, repeatable=True).upstream
    _print(accepted, as_json)


@app.command()
@report_errors
@add_operator_options()
def remove(upstream: Id, *, target: Target, as_json: bool) -> None:
    """Remove an upstream and disable its tools.

    \b
    Example:
      toolmesh upstreams remove git
    """
    from toolmesh.registry.v1 import upstream_service_pb2 as pb
    from toolmesh.registry.v1.upstream_service_pb2_grpc import UpstreamServiceStub

    with as_operator(target) as transport:
        _get(transport, upstream)
        request = pb.RemoveUpstreamRequest(name=_resource_name(upstream))
        transport.unary(UpstreamServiceStub(transport.channel).RemoveUpstream, request, None, repeatable=True)
    if as_json:
        output.print_json({"removed": upstream})
    else:
        output.out().print(output.text(f"{upstream} is removed, and its tools are disabled"))


def _get(transport: Transport, upstream: str) -> upb.Upstream:
    from toolmesh.registry.v1 import upstream_service_pb2 as pb
    from toolmesh.registry.v1.upstream_service_pb2_grpc import UpstreamServiceStub

    request = pb.GetUpstreamRequest(name=_resource_name(upstream))
    found: upb.Upstream = transport.unary(
        UpstreamServiceStub(transport.channel).GetUpstream, request, None, repeatable=True
    ).upstream
    return found


def _print(found: upb.Upstream, as_json: bool) -> None:
    if as_json:
        output.print_json({"upstream": upstream_document(found)})
        return
    print_upstream(found)
    print_changes(changed_tools(found))


def _resource_name(upstream: str) -> str:
    return upstream if upstream.startswith("upstreams/") else f"upstreams/{upstream}"
