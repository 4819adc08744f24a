"""`toolmesh audit changes`: shows which resources calls changed, from what to what."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolmesh_sdk.cli.failures import report_errors
from toolmesh_sdk.cli.inputs.target import Target, open_client
from toolmesh_sdk.cli.inputs.target_options import add_target_options
from toolmesh_sdk.cli.inputs.timestamps import parse_past_time
from toolmesh_sdk.cli.tool_names import short_name
from toolmesh_sdk.cli.views import output

if TYPE_CHECKING:
    from toolmesh.audit.v1 import audit_record_pb2 as pb

_PAGE_SIZE = 1000
_FILES = "file:"
Since = Annotated[str, typer.Option(help="From a time or a duration ago: 2026-11-15T08:00:00Z, 2h.")]


@report_errors
@add_target_options()
def changes(
    resource: Annotated[
        str, typer.Argument(metavar="RESOURCE", help="The resource or a pattern, such as reports/a.txt or 'order:*'.")
    ] = "*",
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="The number of changes.")] = 100,
    tool: Annotated[str, typer.Option(help="Only changes by this tool.")] = "",
    subject: Annotated[str, typer.Option(help="Only changes by calls of this subject, a DID.")] = "",
    invocation: Annotated[str, typer.Option(help="Only changes by this invocation.")] = "",
    since: Since = "7d",
    until: Annotated[str, typer.Option(help="Before a time, or a duration ago.")] = "",
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Show what calls changed, with digests.

    Only changes that happened: of a file its content before and after. With --json: {"changes": [...]}.

    \b
    Example:
      toolmesh audit changes reports/a.txt --since 30d
    """
    filters: dict[str, Any] = {"tool": tool, "subject": subject, "invocation_id": invocation}
    filters["from_time"] = parse_past_time(since, "--since")
    if until:
        filters["to_time"] = parse_past_time(until, "--until")
    with open_client(target) as client:
        records = client.query_records(page_size=_PAGE_SIZE, **filters)
        found = list(islice(_changes(records, resource), number))
    if as_json:
        output.print_json({"changes": found})
        return
    if not found:
        output.err().print("No record states such a change.")
    for change in found:
        _print_change(change)


def _changes(records: Iterator[pb.LoggedRecord], pattern: str) -> Iterator[dict[str, Any]]:
    from toolmesh.audit.v1 import audit_record_pb2

    from toolmesh_sdk.cli.views.documents import enum_label, format_time

    for logged in records:
        record = logged.record
        for effect in record.observed_effects:
            if not matches_resource(effect.resource, pattern):
                continue
            yield {
                "sequence": logged.sequence,
                "time": format_time(record.event_time),
                "subject": record.caller.subject,
                "tenant": record.caller.tenant,
                "tool_version": record.tool_version,
                "invocation_id": record.invocation_id,
                "operation": effect.operation,
                "resource": effect.resource,
                "source": enum_label(audit_record_pb2.EffectSource.DESCRIPTOR, effect.source),
                "digest_before": effect.digest_before,
                "digest_after": effect.digest_after,
            }


def matches_resource(resource: str, pattern: str) -> bool:
    """Return whether a pattern names a resource; `file:` may be omitted."""
    return fnmatchcase(resource, pattern) or fnmatchcase(resource.removeprefix(_FILES), pattern)


def _print_change(change: dict[str, Any]) -> None:
    console = output.out()
    head = f"{change['sequence']:>6}  {change['time']}  "
    body = f"{change['operation']:<6}  {change['resource']}"
    tail = f"  {short_name(change['tool_version'])}  {change['subject']}  {change['invocation_id']}"
    console.print(output.text((head, "dim"), body, (tail, "dim")))
    for name, digest in (("from", change["digest_before"]), ("to", change["digest_after"])):
        if change["digest_before"] or change["digest_after"]:
            console.print(output.text((f"        {name:<4}  ", "dim"), digest or "nothing"))
