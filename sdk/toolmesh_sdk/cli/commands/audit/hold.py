"""`toolmesh audit hold`: manages legal holds, which keep records from being erased or dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from toolmesh_sdk.cli.commands.audit.shards import SERVICE, Reason
from toolmesh_sdk.cli.failures import report_errors
from toolmesh_sdk.cli.inputs import options
from toolmesh_sdk.cli.inputs.admin_connection import as_admin
from toolmesh_sdk.cli.inputs.target import Target
from toolmesh_sdk.cli.inputs.target_options import add_target_options
from toolmesh_sdk.cli.views import output

if TYPE_CHECKING:
    from toolmesh.audit.v1 import shard_pb2 as pb

app = typer.Typer(help="Manage legal holds on records.", no_args_is_help=True)
Hold = Annotated[str, typer.Argument(metavar="ID", help="The id of the hold: lower-case letters, digits and dashes.")]


@app.command()
@report_errors
@add_target_options()
def place(
    hold: Hold,
    reason: Reason,
    begin: Annotated[int, typer.Option("--from", min=0, max=options.MAX_INT64, help="The first sequence to hold.")] = 0,
    end: Annotated[
        int,
        typer.Option("--to", min=0, max=options.MAX_INT64, help="The sequence after the last.", show_default="no end"),
    ] = 0,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Place a legal hold on records.

    Without a range it covers the whole log, including future records.

    \b
    Example:
      toolmesh audit hold place case-7 --from 100 --to 200 --reason 'a dispute'
    """
    from toolmesh.audit.v1 import log_service_pb2
    from toolmesh.audit.v1.log_service_pb2_grpc import LogServiceStub

    request = log_service_pb2.PlaceLegalHoldRequest(hold_id=hold, first_sequence=begin, end_sequence=end, reason=reason)
    with as_admin(target, service=SERVICE) as transport:
        stub = LogServiceStub(transport.channel)
        _print_holds([transport.unary(stub.PlaceLegalHold, request, None, repeatable=True).hold], as_json)


@app.command()
@report_errors
@add_target_options()
def release(hold: Hold, reason: Reason, *, target: Target, as_json: bool) -> None:
    """Release a legal hold.

    \b
    Example:
      toolmesh audit hold release case-7 --reason settled
    """
    from toolmesh.audit.v1 import log_service_pb2
    from toolmesh.audit.v1.log_service_pb2_grpc import LogServiceStub

    request = log_service_pb2.ReleaseLegalHoldRequest(hold_id=hold, reason=reason)
    with as_admin(target, service=SERVICE) as transport:
        stub = LogServiceStub(transport.channel)
        _print_holds([transport.unary(stub.ReleaseLegalHold, request, None, repeatable=True).hold], as_json)


@app.command("list")
@report_errors
@add_target_options()
def list_holds(*, target: Target, as_json: bool) -> None:
    """List legal holds, including released ones.

    \b
    Example:
      toolmesh audit hold list
    """
    from toolmesh_sdk.audit.remote import RemoteLog

    with as_admin(target, service=SERVICE) as transport:
        _print_holds(RemoteLog(transport).holds(), as_json)


def _print_holds(holds: list[pb.LegalHold], as_json: bool) -> None:
    from toolmesh_sdk.cli.views.documents import format_time, message_to_dict

    if as_json:
        output.print_json({"holds": [message_to_dict(each) for each in holds]})
        return
    rows = [
        (
            each.hold_id,
            f"released {format_time(each.release_time)}" if each.HasField("release_time") else "holds",
            f"{each.first_sequence} to {each.end_sequence or 'the end'}",
            format_time(each.place_time),
            each.placed_by,
            each.reason,
        )
        for each in holds
    ]
    output.print_table(("HOLD", "STATE", "COVERS", "PLACED", "BY", "REASON"), rows)
