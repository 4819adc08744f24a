"""`toolmesh audit acts`: prints the administrative acts of the log."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolmesh_sdk.cli.failures import report_errors
from toolmesh_sdk.cli.inputs.claims import decode_claims
from toolmesh_sdk.cli.inputs.target import Target, open_client
from toolmesh_sdk.cli.inputs.target_options import add_target_options
from toolmesh_sdk.cli.inputs.timestamps import parse_past_time
from toolmesh_sdk.cli.views import output

if TYPE_CHECKING:
    from toolmesh.audit.v1 import audit_record_pb2 as pb

    from toolmesh_sdk._wire.requests import RecordFilters

_MAX_PAGE_SIZE = 1000


@report_errors
@add_target_options()
def acts(
    resource: Annotated[
        str,
        typer.Argument(
            metavar="[RESOURCE]",
            help="Only acts on this resource, given by its name, the beginning of its name, or the text of a token.",
        ),
    ] = "",
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="The number of acts to show.")] = 20,
    subject: Annotated[str, typer.Option(help="Only acts of this subject, a DID.")] = "",
    trace: Annotated[str, typer.Option(help="Only this trace id.")] = "",
    since: Annotated[str, typer.Option(help="From a time or a duration ago: 2026-11-15T08:00:00Z, 2h.")] = "",
    until: Annotated[str, typer.Option(help="Before a time, or a duration ago.")] = "",
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Show who changed what, newest first.

    Resources: policySets/N, tokens/ID, subjects/DID, signingKeys/ID, tools/NAME/versions/N, namespaces/NAME,
    legalHolds/ID, records/N, shards/N. A token of a tenant shows the acts of that tenant's callers.

    \b
    Examples:
      toolmesh audit acts policySets --since 2d
      toolmesh audit acts "$TOKEN"
    """
    filters: RecordFilters = {
        "acts_only": True,
        "resource": resource_name(resource),
        "subject": subject,
        "trace_id": trace,
    }
    if since:
        filters["from_time"] = parse_past_time(since, "--since")
    if until:
        filters["to_time"] = parse_past_time(until, "--until")
    with open_client(target) as client:
        newest = list(islice(client.query_records(page_size=min(number, _MAX_PAGE_SIZE), **filters), number))
    if as_json:
        from toolmesh_sdk.cli.views.documents import message_to_dict

        hidden = frozenset({"canonical_json"})
        output.print_json({"records": [message_to_dict(record, without=hidden) for record in newest]})
        return
    if not newest:
        output.err().print("No acts match.")
    console = output.out()
    for record in newest:
        console.print(act_line(record))


def resource_name(text: str) -> str:
    """Return the resource that a text names; a token names itself by its id."""
    return f"tokens/{decode_claims(text).get('jti', '')}" if text.count(".") == 2 and "/" not in text else text


def act_line(logged: pb.LoggedRecord) -> Any:
    """Return the line of an act: when, what, on which resource, by whom, and why."""
    from toolmesh.audit.v1 import audit_record_pb2

    from toolmesh_sdk.cli.views.documents import enum_label, format_time

    record = logged.record
    event = enum_label(audit_record_pb2.EventClass.DESCRIPTOR, record.event_class)
    states = f" {record.previous_state} -> {record.state}" if record.state else ""
    reason = f"  {record.act.reason}" if record.act.reason else ""
    return output.text(
        (f"{logged.sequence:>6}  {format_time(record.event_time)}  ", "dim"),
        f"{event:<20}  {record.act.resource}{states}  ",
        (f"by {actor_of(record)}", "green"),
        (reason, "dim"),
    )


def actor_of(record: pb.AuditRecord) -> str:
    """Return who acted: the agent for its subject, the subject, the peer, or the service itself."""
    caller = record.caller
    if caller.agent and caller.agent != caller.subject:
        return f"{caller.agent} for {caller.subject}"
    return caller.subject or caller.peer or record.writer
