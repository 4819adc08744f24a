"""`toolmesh audit tail` and `show`: print audit records. Also assembles the `audit` group."""

from __future__ import annotations

from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolmesh_sdk.cli.commands.audit import hold as holds
from toolmesh_sdk.cli.commands.audit import shards
from toolmesh_sdk.cli.commands.audit.acts import acts
from toolmesh_sdk.cli.commands.audit.changes import changes
from toolmesh_sdk.cli.commands.audit.costs import costs
from toolmesh_sdk.cli.commands.audit.export import export
from toolmesh_sdk.cli.commands.audit.signals import signals
from toolmesh_sdk.cli.commands.audit.verify import verify
from toolmesh_sdk.cli.failures import report_errors
from toolmesh_sdk.cli.inputs.target import Target, open_client
from toolmesh_sdk.cli.inputs.target_options import add_target_options
from toolmesh_sdk.cli.inputs.timestamps import parse_past_time
from toolmesh_sdk.cli.tool_names import short_name
from toolmesh_sdk.cli.views import output

if TYPE_CHECKING:
    from toolmesh.audit.v1 import audit_record_pb2 as pb

    from toolmesh_sdk._wire.requests import RecordFilters
    from toolmesh_sdk.client import Client

app = typer.Typer(help="Read, export and verify the log; manage retention.", no_args_is_help=True)
for _command in (
    acts,
    changes,
    costs,
    export,
    signals,
    verify,
    shards.shards,
    shards.close,
    shards.archive,
    shards.erase,
):
    app.command()(_command)
app.add_typer(holds.app, name="hold")
_MAX_PAGE_SIZE = 1000


class Status(StrEnum):
    """The status of a record."""

    SUCCESS = "success"
    ERROR = "error"
    TIMEOUT = "timeout"


class Decision(StrEnum):
    """The authorization decision of a record."""

    ALLOW = "allow"
    DENY = "deny"
    REQUIRES_APPROVAL = "requires_approval"


@app.command()
@report_errors
@add_target_options()
def tail(
    number: Annotated[int, typer.Option("--number", "-n", min=0, help="The number of records to show.")] = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing new records.")] = False,
    tool: Annotated[str, typer.Option(help="Only this tool, such as echo or arith*.")] = "",
    trace: Annotated[str, typer.Option(help="Only this trace id.")] = "",
    invocation: Annotated[str, typer.Option(help="Only this invocation id.")] = "",
    subject: Annotated[str, typer.Option(help="Only calls of this subject, a DID.")] = "",
    status: Annotated[Status | None, typer.Option(help="Only records with this status.")] = None,
    decision: Annotated[Decision | None, typer.Option(help="Only records with this decision.")] = None,
    since: Annotated[str, typer.Option(help="From a time or a duration ago: 2026-11-15T08:00:00Z, 2h.")] = "",
    until: Annotated[str, typer.Option(help="Before a time, or a duration ago.")] = "",
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Show the newest records, oldest first.

    With --json: {"records": [...]}, or one record per line with --follow.

    \b
    Example:
      toolmesh audit tail -f --tool acme.pay --status error
    """
    filters: RecordFilters = {
        "tool": tool,
        "trace_id": trace,
        "invocation_id": invocation,
        "subject": subject,
        "status": status or "",
        "authorization": decision or "",
    }
    if since:
        filters["from_time"] = parse_past_time(since, "--since")
    if until:
        filters["to_time"] = parse_past_time(until, "--until")
    with open_client(target) as client:
        # Read before the query, so that a record appended in between is not lost.
        now = client.checkpoint() if follow else None
        size = now.first_sequence + now.tree_size if now else 0
        records = _newest(client, number, filters)
        _print_records(records, as_json=as_json, lines=follow)
        if follow:
            _follow(client, records[-1].sequence + 1 if records else size, filters, as_json=as_json)


@app.command()
@report_errors
@add_target_options()
def show(
    record: Annotated[str, typer.Argument(metavar="RECORD", help="The record: its sequence, id or resource name.")],
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Show one record.

    \b
    Example:
      toolmesh audit show 17
    """
    from toolmesh_sdk.cli.views.documents import message_to_dict

    with open_client(target) as client:
        logged = client.get_record(_record_name(client, record))
    if as_json:
        output.print_json(message_to_dict(logged))
    else:
        output.print_content(message_to_dict(logged, without=frozenset({"canonical_json"})))


def _newest(client: Client, number: int, filters: RecordFilters) -> list[pb.LoggedRecord]:
    if not number:
        return []
    newest = client.query_records(page_size=min(number, _MAX_PAGE_SIZE), **filters)
    return list(islice(newest, number))[::-1]


def _follow(client: Client, sequence: int, filters: RecordFilters, *, as_json: bool) -> None:
    try:
        for record in client.watch_records(from_sequence=sequence, **filters):
            _print_records([record], as_json=as_json, lines=True)
    except KeyboardInterrupt:
        return


def _record_name(client: Client, record: str) -> str:
    if "/" in record:
        return record
    return f"logs/{client.checkpoint().log_id}/records/{record}" if record.isdigit() else f"records/{record}"


def _print_records(records: list[pb.LoggedRecord], *, as_json: bool, lines: bool) -> None:
    from toolmesh_sdk.cli.views.documents import message_to_dict

    if as_json:
        shown = [message_to_dict(record, without=frozenset({"canonical_json"})) for record in records]
        if not lines:
            output.print_json({"records": shown})
        for each in shown if lines else []:
            output.print_json(each, lines=True)
        return
    if not records and not lines:
        output.err().print("No records match.")
    console = output.out()
    for record in records:
        console.print(_line(record))


def _line(logged: pb.LoggedRecord) -> Any:
    from toolmesh_sdk.cli.views.documents import format_time

    record = logged.record
    if logged.erased_by:
        # The whole payload is gone, including the time of the event.
        prefix = f"{logged.sequence:>6}  {format_time(logged.log_time)}  "
        return output.text((prefix, "dim"), ("erased", "yellow"), f"; see record {logged.erased_by} for the reason")
    outcome, style = _outcome(record)
    return output.text(
        (f"{logged.sequence:>6}  {format_time(record.event_time)}  ", "dim"),
        f"{_event(record):<28}  {short_name(record.tool_version):<24}  ",
        (f"{outcome:<10}", style),
        (f"  {record.caller.subject}  {record.invocation_id}", "dim"),
    )


def _event(record: pb.AuditRecord) -> str:
    from toolmesh.audit.v1 import audit_record_pb2

    from toolmesh_sdk.cli.views.documents import enum_label

    event = enum_label(audit_record_pb2.EventClass.DESCRIPTOR, record.event_class)
    return f"{event} (preview)" if record.preview else event


def _outcome(record: pb.AuditRecord) -> tuple[str, str]:
    from toolmesh.audit.v1 import audit_record_pb2
    from toolmesh.common.v1 import error_reason_pb2

    from toolmesh_sdk.cli.views.documents import enum_label

    reason = enum_label(error_reason_pb2.ErrorReason.DESCRIPTOR, record.error_reason)
    status = enum_label(audit_record_pb2.RecordStatus.DESCRIPTOR, record.status)
    allowed = enum_label(audit_record_pb2.AuthorizationOutcome.DESCRIPTOR, record.authorization)
    if reason:
        return reason, "red"
    return status or allowed, "green" if status == "success" or allowed == "allow" else "yellow"
