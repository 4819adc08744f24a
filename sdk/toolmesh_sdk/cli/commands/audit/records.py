"""`toolmesh audit`: what happened."""

from __future__ import annotations

from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolmesh_sdk.cli.commands.audit import hold as holds
from toolmesh_sdk.cli.commands.audit import shards
from toolmesh_sdk.cli.commands.audit.export import export
from toolmesh_sdk.cli.commands.audit.verify import verify
from toolmesh_sdk.cli.failures import reported
from toolmesh_sdk.cli.inputs import options
from toolmesh_sdk.cli.inputs.target import Place, open_client
from toolmesh_sdk.cli.inputs.timestamps import moment_from
from toolmesh_sdk.cli.views import output

if TYPE_CHECKING:
    from toolmesh.audit.v1 import audit_record_pb2 as pb

    from toolmesh_sdk._wire.requests import RecordFilters
    from toolmesh_sdk.client import Client

app = typer.Typer(
    help="Read the audit log, take it away, verify it, and rule how long it is kept.", no_args_is_help=True
)
for _command in (export, verify, shards.shards, shards.close, shards.archive, shards.erase):
    app.command()(_command)
app.add_typer(holds.app, name="hold")
_MOST_PER_PAGE = 1000


class Status(StrEnum):
    """How a step ended."""

    SUCCESS = "success"
    ERROR = "error"
    TIMEOUT = "timeout"


class Decision(StrEnum):
    """What policy said to a call."""

    ALLOW = "allow"
    DENY = "deny"
    REQUIRES_APPROVAL = "requires_approval"


@app.command()
@reported
def tail(
    number: Annotated[int, typer.Option("--number", "-n", min=0, help="How many of the last records.")] = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep showing what is appended.")] = False,
    tool: Annotated[str, typer.Option(help="Only this tool, such as echo or arith*.")] = "",
    trace: Annotated[str, typer.Option(help="Only this trace.")] = "",
    invocation: Annotated[str, typer.Option(help="Only this invocation.")] = "",
    subject: Annotated[str, typer.Option(help="Only calls on this subject's authority, a DID.")] = "",
    status: Annotated[Status | None, typer.Option(help="Only steps that ended so.")] = None,
    decision: Annotated[Decision | None, typer.Option(help="Only steps that policy answered so.")] = None,
    since: Annotated[str, typer.Option(help="From this time, or so long ago: 2026-11-15T08:00:00Z, 2h.")] = "",
    until: Annotated[str, typer.Option(help="Up to but without this time, or so long ago.")] = "",
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Show the last records, oldest first.

    With --json: {"records": [...]}, or one record per line when following.
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
        filters["from_time"] = moment_from(since, "--since")
    if until:
        filters["to_time"] = moment_from(until, "--until")
    with open_client(Place(url=url, token=token, state=state, ca=ca), timeout) as client:
        # Asked for before the query, so that a record appended in between is followed and not lost.
        now = client.checkpoint() if follow else None
        size = now.first_sequence + now.tree_size if now else 0
        records = _last(client, number, filters)
        _print_records(records, as_json=as_json, lines=follow)
        if follow:
            _follow(client, records[-1].sequence + 1 if records else size, filters, as_json=as_json)


@app.command()
@reported
def show(
    record: Annotated[
        str, typer.Argument(metavar="RECORD", help="A record: its sequence, its id, or its resource name.")
    ],
    timeout: options.Timeout = 30.0,
    url: options.Url = "",
    token: options.Token = None,
    state: options.State = None,
    ca: options.Ca = None,
    as_json: options.Json = False,
) -> None:
    """Show one record, whole."""
    from toolmesh_sdk.cli.views.documents import document

    with open_client(Place(url=url, token=token, state=state, ca=ca), timeout) as client:
        found = client.get_record(_record_name(client, record))
    if as_json:
        output.print_json(document(found))
    else:
        output.print_content(document(found, without=frozenset({"canonical_json"})))


def _last(client: Client, number: int, filters: RecordFilters) -> list[pb.LoggedRecord]:
    if not number:
        return []
    newest = client.query_records(page_size=min(number, _MOST_PER_PAGE), **filters)
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
    from toolmesh_sdk.cli.views.documents import document

    if as_json:
        shown = [document(record, without=frozenset({"canonical_json"})) for record in records]
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
    from toolmesh_sdk.cli.views.documents import moment

    record = logged.record
    if logged.erased_by:
        # All that it said is gone, the time of the event included.
        told = f"{logged.sequence:>6}  {moment(logged.log_time)}  "
        return output.text((told, "dim"), ("erased", "yellow"), f"; record {logged.erased_by} says by whom and why")
    outcome, style = _outcome(record)
    return output.text(
        (f"{logged.sequence:>6}  {moment(record.event_time)}  ", "dim"),
        f"{_event(record):<28}  {_tool(record.tool_version):<24}  ",
        (f"{outcome:<10}", style),
        (f"  {record.caller.subject}  {record.invocation_id}", "dim"),
    )


def _event(record: pb.AuditRecord) -> str:
    from toolmesh.audit.v1 import audit_record_pb2

    from toolmesh_sdk.cli.views.documents import word

    event = word(audit_record_pb2.EventClass.DESCRIPTOR, record.event_class)
    return f"{event} (preview)" if record.preview else event


def _outcome(record: pb.AuditRecord) -> tuple[str, str]:
    from toolmesh.audit.v1 import audit_record_pb2
    from toolmesh.common.v1 import error_reason_pb2

    from toolmesh_sdk.cli.views.documents import word

    reason = word(error_reason_pb2.ErrorReason.DESCRIPTOR, record.error_reason)
    status = word(audit_record_pb2.RecordStatus.DESCRIPTOR, record.status)
    allowed = word(audit_record_pb2.AuthorizationOutcome.DESCRIPTOR, record.authorization)
    if reason:
        return reason, "red"
    return status or allowed, "green" if status == "success" or allowed == "allow" else "yellow"


def _tool(name: str) -> str:
    return name.removeprefix("tools/").replace("/versions/", "@")
