"""`toolmesh audit hold`: what must neither be erased nor dropped while a matter is open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from toolmesh_sdk.cli.commands.audit.shards import SERVICE, Why
from toolmesh_sdk.cli.failures import reported
from toolmesh_sdk.cli.inputs import options
from toolmesh_sdk.cli.inputs.admin_connection import as_steward
from toolmesh_sdk.cli.inputs.target import Place
from toolmesh_sdk.cli.views import output

if TYPE_CHECKING:
    from toolmesh.audit.v1 import shard_pb2 as pb

app = typer.Typer(help="Keep records from being erased or dropped.", no_args_is_help=True)
Hold = Annotated[str, typer.Argument(metavar="ID", help="The hold: lower-case letters, digits and dashes.")]


@app.command()
@reported
def place(
    hold: Hold,
    reason: Why,
    begin: Annotated[
        int, typer.Option("--from", min=0, max=options.MOST, help="The first sequence that it covers.")
    ] = 0,
    end: Annotated[
        int,
        typer.Option("--to", min=0, max=options.MOST, help="The sequence behind the last.", show_default="no end"),
    ] = 0,
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Place a hold on a range of the log; without one, on all of it, records to come included."""
    from toolmesh.audit.v1 import log_service_pb2
    from toolmesh.audit.v1.log_service_pb2_grpc import LogServiceStub

    request = log_service_pb2.PlaceLegalHoldRequest(hold_id=hold, first_sequence=begin, end_sequence=end, reason=reason)
    with as_steward(Place(url=url, token=token, state=state, ca=ca), timeout, service=SERVICE) as transport:
        stub = LogServiceStub(transport.channel)
        _print_holds([transport.unary(stub.PlaceLegalHold, request, None, repeatable=True).hold], as_json)


@app.command()
@reported
def release(
    hold: Hold,
    reason: Why,
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Release a hold."""
    from toolmesh.audit.v1 import log_service_pb2
    from toolmesh.audit.v1.log_service_pb2_grpc import LogServiceStub

    request = log_service_pb2.ReleaseLegalHoldRequest(hold_id=hold, reason=reason)
    with as_steward(Place(url=url, token=token, state=state, ca=ca), timeout, service=SERVICE) as transport:
        stub = LogServiceStub(transport.channel)
        _print_holds([transport.unary(stub.ReleaseLegalHold, request, None, repeatable=True).hold], as_json)


@app.command("list")
@reported
def list_holds(
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """List the holds, those that were released included."""
    from toolmesh_sdk.audit.remote import RemoteLog

    with as_steward(Place(url=url, token=token, state=state, ca=ca), timeout, service=SERVICE) as transport:
        _print_holds(RemoteLog(transport).holds(), as_json)


def _print_holds(found: list[pb.LegalHold], as_json: bool) -> None:
    from toolmesh_sdk.cli.views.documents import document, moment

    if as_json:
        output.print_json({"holds": [document(each) for each in found]})
        return
    rows = [
        (
            each.hold_id,
            f"released {moment(each.release_time)}" if each.HasField("release_time") else "holds",
            f"{each.first_sequence} to {each.end_sequence or 'the end'}",
            moment(each.place_time),
            each.placed_by,
            each.reason,
        )
        for each in found
    ]
    output.print_table(("HOLD", "STATE", "COVERS", "PLACED", "BY", "REASON"), rows)
