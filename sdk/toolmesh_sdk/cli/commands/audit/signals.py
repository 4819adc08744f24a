"""`toolmesh audit signals`: shows who causes signals of abuse, from the records of the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolmesh_sdk.cli.failures import report_errors
from toolmesh_sdk.cli.inputs.target import Target, open_client
from toolmesh_sdk.cli.inputs.target_options import add_target_options
from toolmesh_sdk.cli.inputs.timestamps import parse_past_time
from toolmesh_sdk.cli.views import output

if TYPE_CHECKING:
    from toolmesh.audit.v1 import audit_record_pb2 as pb

_PAGE_SIZE = 1000
# What is counted stays in memory.
_MAX_PARTIES = 10_000
# The reasons of the error table that each signal is made of; executors count the same in their metrics.
CALLER_SIGNALS = {
    "denied": ("TOOL_NOT_IN_TOKEN", "SCOPE_MISSING", "PERMISSION_DENIED", "AUTHORITY_EXCEEDED"),
    "limited": ("RATE_LIMITED", "BUDGET_EXHAUSTED"),
    "invalid_arguments": ("ARGUMENTS_INVALID", "COERCION_FAILED", "INVALID_JSON"),
    "unknown_tools": ("TOOL_NOT_FOUND", "TOOL_VERSION_NOT_FOUND"),
    "injection": ("INJECTION_DETECTED",),
}
PROVIDER_SIGNALS = {
    "forbidden_hosts": ("NETWORK_POLICY_VIOLATION",),
    "undeclared_effects": ("SIDE_EFFECT_VIOLATION",),
    "invalid_results": ("RESULT_INVALID",),
    "unclean_results": ("SANITIZATION_FAILED",),
    "crashes": ("TOOL_CRASHED",),
}


class Party(StrEnum):
    """Whose signals are shown."""

    CALLER = "caller"
    PROVIDER = "provider"


@dataclass(frozen=True, slots=True)
class SignalCount:
    """The signals of one kind that one party caused, and the calls of that party."""

    party: str
    name: str
    signal: str
    count: int
    calls: int


@report_errors
@add_target_options()
def signals(
    by: Annotated[Party | None, typer.Option(help="Only of callers, or of the namespaces of tools.")] = None,
    since: Annotated[str, typer.Option(help="From a time or a duration ago: 2026-11-15T08:00:00Z, 2h.")] = "1h",
    number: Annotated[int, typer.Option("--number", "-n", min=1, help="The number of lines.")] = 20,
    records: Annotated[int, typer.Option(min=1, max=1_000_000, help="The most records to read.")] = 100_000,
    *,
    target: Target,
    as_json: bool,
) -> None:
    """Show who causes signals of abuse, most first.

    Callers whose calls are denied, limited or invalid, and namespaces whose tools reach for forbidden hosts, change
    what they do not declare, break their schema or crash. A signal is no verdict. Executors count the same as
    toolmesh_executor_abuse_signals_total and warn of many. With --json: {"signals": [...], "read": n}.

    \b
    Example:
      toolmesh audit signals --by provider --since 24h
    """
    with open_client(target) as client:
        start = parse_past_time(since, "--since")
        # Counted page by page: the period may have more records than fit into memory.
        found = _Counted(islice(client.query_records(page_size=_PAGE_SIZE, from_time=start), records))
        counts = [each for each in count_signals(logged.record for logged in found) if by in (None, each.party)]
    if as_json:
        output.print_json({"signals": [asdict(each) for each in counts[:number]], "read": found.count})
        return
    if found.count == records:
        output.err().print(f"Only the newest {records:,} records were read; --records reads more.")
    if not counts:
        output.err().print("No signals.")
        return
    rows = [(each.party, each.name, each.signal, str(each.count), str(each.calls)) for each in counts[:number]]
    output.print_table(("PARTY", "NAME", "SIGNAL", "COUNT", "CALLS"), rows)


class _Counted:
    """Iterates once, and counts what it passes on."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._items, self.count = items, 0

    def __iter__(self) -> Iterator[Any]:
        for item in self._items:
            self.count += 1
            yield item


def count_signals(records: Iterable[pb.AuditRecord]) -> list[SignalCount]:
    """Count the signals in the records of calls that ended, most first."""
    from toolmesh.common.v1.error_table import Reason

    named: Mapping[Party, Mapping[str, tuple[str, ...]]] = {
        Party.CALLER: CALLER_SIGNALS,
        Party.PROVIDER: PROVIDER_SIGNALS,
    }
    kinds = {
        Reason[reason]: (party, signal)
        for party, by_signal in named.items()
        for signal, reasons in by_signal.items()
        for reason in reasons
    }
    calls: dict[tuple[Party, str], int] = {}
    counts: dict[tuple[Party, str, str], int] = {}
    for record in records:
        # Of the records of a call only the last one has a status.
        if not record.status or not record.invocation_id:
            continue
        # Refused calls beyond a limit are recorded together.
        weight = max(record.refused_calls, 1)
        names = {Party.CALLER: record.caller.subject, Party.PROVIDER: _namespace(record.tool_version)}
        for party, name in names.items():
            if name and ((party, name) in calls or len(calls) < _MAX_PARTIES):
                calls[party, name] = calls.get((party, name), 0) + weight
        party_and_signal = kinds.get(record.error_reason)  # type: ignore[call-overload]
        if party_and_signal is not None:
            party, signal = party_and_signal
            if (party, names[party]) in calls:
                key = (party, names[party], signal)
                counts[key] = counts.get(key, 0) + weight
    found = [
        SignalCount(party.value, name, signal, count, calls[party, name])
        for (party, name, signal), count in counts.items()
    ]
    return sorted(found, key=lambda each: (-each.count, each.party, each.name, each.signal))


def _namespace(tool_version: str) -> str:
    return tool_version.removeprefix("tools/").partition(".")[0] if tool_version else ""
