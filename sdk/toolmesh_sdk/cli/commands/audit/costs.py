"""`toolmesh audit costs`: shows what calls cost, record by record."""

from __future__ import annotations

from collections.abc import Iterator
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


@report_errors
@add_target_options()
def costs(
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="The number of calls.")] = 100,
    tool: Annotated[str, typer.Option(help="Only calls of this tool.")] = "",
    task: Annotated[str, typer.Option(help="Only calls of this task.")] = "",
    subject: Annotated[str, typer.Option(help="Only calls of this subject, a DID.")] = "",
    invocation: Annotated[str, typer.Option(help="Only this invocation.")] = "",
    since: Annotated[str, typer.Option(help="From a time or a duration ago: 2026-11-15T08:00:00Z, 2h.")] = "7d",
    until: Annotated[str, typer.Option(help="Before a time, or a duration ago.")] = "",
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Show what calls cost, newest first, and the sum.

    Totals of any length by tool, task, caller and tenant: `toolmesh usage top --by cost`.

    With --json: {"calls": [...], "total_micros": n}.

    \b
    Example:
      toolmesh audit costs --task nightly-report
    """
    filters: dict[str, Any] = {"tool": tool, "subject": subject, "invocation_id": invocation}
    filters["from_time"] = parse_past_time(since, "--since")
    if until:
        filters["to_time"] = parse_past_time(until, "--until")
    with open_client(target) as client:
        records = client.query_records(page_size=_PAGE_SIZE, **filters)
        paid = list(islice(_paid_calls(records, task), number))
    total = sum(call["cost_micros"] for call in paid)
    if as_json:
        output.print_json({"calls": paid, "total_micros": total})
        return
    if not paid:
        output.err().print("No record states a cost.")
        return
    for call in paid:
        _print_call(call)
    _print_total(total, len(paid))


def _paid_calls(records: Iterator[pb.LoggedRecord], task: str) -> Iterator[dict[str, Any]]:
    from toolmesh_sdk.cli.views.documents import format_time

    for logged in records:
        record = logged.record
        if not record.cost_micros or (task and record.task_id != task):
            continue
        yield {
            "sequence": logged.sequence,
            "time": format_time(record.event_time),
            "subject": record.caller.subject,
            "tenant": record.caller.tenant,
            "task_id": record.task_id,
            "tool_version": record.tool_version,
            "invocation_id": record.invocation_id,
            "cost_micros": record.cost_micros,
            "costs": {cost.category: cost.amount_micros for cost in record.costs},
        }


def format_exact_cost(micros: int) -> str:
    """Format a cost in units, to the last micro-unit."""
    units, rest = divmod(micros, 1_000_000)
    return f"{units:,}.{rest:06d}"


def _print_call(call: dict[str, Any]) -> None:
    parts = ", ".join(f"{category} {format_exact_cost(micros)}" for category, micros in call["costs"].items())
    tail = f"  {call['subject']}  {call['task_id'] or '(no task)'}  {call['invocation_id']}"
    output.out().print(
        output.text(
            (f"{call['sequence']:>6}  {call['time']}  ", "dim"),
            f"{format_exact_cost(call['cost_micros']):>12}  {short_name(call['tool_version'])}",
            (f"  {parts}" if parts else "", "cyan"),
            (tail, "dim"),
        )
    )


def _print_total(total: int, calls: int) -> None:
    output.out().print(output.text(f"{format_exact_cost(total)} for {calls:,} call{'' if calls == 1 else 's'}"))
