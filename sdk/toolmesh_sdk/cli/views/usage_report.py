"""Prints usage reports for a terminal of eighty columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from toolmesh_sdk.cli.views import output
from toolmesh_sdk.cli.views.charts import (
    Column,
    bar,
    format_cost,
    format_duration,
    format_percent,
    print_columns,
    sparkline,
)

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp
    from toolmesh.audit.v1 import usage_pb2, usage_service_pb2

UNKNOWN_TOOL = "(no such tool)"
_UNNAMED = {"Callers": "(no subject)", "Tasks": "(no task)", "Tenants": "(no tenant)"}
_DAY = 86_400
_LINE = 40
_SHOWN_REASONS = 5
_OUTCOMES = ("succeeded", "failed", "timed_out", "canceled", "not_started", "refused", "replayed")
_GOOD, _BAD = "green", "red"


def print_top(
    ranking: usage_service_pb2.ListTopUsageResponse,
    total: usage_service_pb2.GetUsageResponse,
    *,
    by: str,
    what: str,
    days: int,
) -> None:
    """Print a ranking under the total usage."""
    _heading(f"{what} by {by}", total.total, days)
    measures = [_measure(by, entry) for entry in ranking.entries]
    most = max(measures, default=0)
    columns = [Column(what[:-1].upper(), name=True), *_USAGE_COLUMNS]
    rows = [
        [_name(entry.name, what), *_usage_columns(entry, ranking.coverage), _format_measure(by, measure, most)]
        for entry, measure in zip(ranking.entries, measures, strict=True)
    ]
    measured = Column("MEAN") if by == "latency" else Column("", chart=True, style="cyan")
    print_columns([*columns, measured], rows)


def print_usage(
    name: str,
    answer: usage_service_pb2.GetUsageResponse,
    *,
    days: int,
    callers: usage_service_pb2.GetToolUsageResponse | None = None,
) -> None:
    """Print the usage of one tool or caller: calls per day, outcomes, latency and error reasons."""
    total, console = answer.total, output.out()
    _heading(name, total, days)
    per_day = _per_day(((day.day, day.usage.calls) for day in answer.days), answer.coverage)
    busiest = max(answer.days, key=lambda day: day.usage.calls)
    _fact(
        "per day", (sparkline(per_day, _LINE), "cyan"), f"  most {busiest.usage.calls:,} on {format_date(busiest.day)}"
    )
    first, last = format_date(total.first_call_time), format_minute(total.last_call_time)
    _fact("calls", f"first {first}, last {last} UTC ({_ago(total.last_call_time)})")
    if callers is not None:
        more = "more than " if callers.more_callers else ""
        _fact("callers", f"{more}{callers.distinct_callers:,}")
    if total.HasField("success_rate"):
        _fact(
            "success",
            (format_percent(total.success_rate), _style(total.success_rate)),
            " of the completed calls",
        )
    if total.HasField("latency"):
        _fact("latency", _latency_line(total.latency))
    if total.cost_micros:
        _fact("cost", format_cost(total.cost_micros))
    console.print()
    for outcome in _OUTCOMES:
        _print_outcome(outcome, getattr(total, outcome), total.calls)
    _print_reasons(total.reasons)


def print_ranking(heading: str, ranking: usage_service_pb2.ListTopUsageResponse, *, last: bool = False) -> None:
    """Print a ranking as a table; `last` adds the day of the last call."""
    if not ranking.entries:
        return
    output.out().print()
    named = "Callers" if heading == "CALLER" else "Tools"
    rows = [
        [
            entry.name.rpartition("/")[2] if heading == "VERSION" else _name(entry.name, named),
            *_usage_columns(entry, ranking.coverage),
            format_date(entry.usage.last_call_time) if last else "",
        ]
        for entry in ranking.entries
    ]
    print_columns([Column(heading, name=True), *_USAGE_COLUMNS, Column("LAST")], rows)


def print_coverage_notes(coverage: usage_pb2.UsageCoverage) -> None:
    """Print on stderr which calls the numbers do not include."""
    console = output.err()
    behind = coverage.log_records - coverage.counted_records
    if behind > 0:
        console.print(
            output.text((f"{behind:,} records of the log are not counted yet; try again in a moment.", "dim"))
        )
    if coverage.folded_calls:
        note = f"{coverage.folded_calls:,} more calls are not broken down: a day had too many callers or tasks."
        console.print(output.text((note, "dim")))


def display_tool(name: str) -> str:
    """Return the short form of a tool name: core.echo, or core.echo@1.0.0."""
    return name.removeprefix("tools/").replace("/versions/", "@") or UNKNOWN_TOOL


def format_date(stamp: Timestamp) -> str:
    """Format the day of a timestamp, in UTC."""
    return stamp.ToDatetime(UTC).date().isoformat()


def format_minute(stamp: Timestamp) -> str:
    """Format a timestamp to the minute, in UTC."""
    return stamp.ToDatetime(UTC).strftime("%Y-%m-%d %H:%M")


_USAGE_COLUMNS = (
    Column("CALLS"),
    Column("ERRORS"),
    Column("P50"),
    Column("P95"),
    Column("COST"),
    Column("PER DAY", chart=True, style="cyan"),
)


def _usage_columns(entry: usage_service_pb2.RankedUsage, coverage: usage_pb2.UsageCoverage) -> Sequence[str]:
    usage = entry.usage
    errors = sum(day.errors for day in entry.days)
    timed = usage.HasField("latency")
    per_day = _per_day(((day.day, day.calls) for day in entry.days), coverage)
    return [
        f"{usage.calls:,}",
        format_percent(errors / usage.calls) if errors else "",
        _seconds(usage.latency.p50) if timed else "",
        _seconds(usage.latency.p95) if timed else "",
        format_cost(usage.cost_micros) if usage.cost_micros else "",
        sparkline(per_day),
    ]


def _heading(name: str, total: usage_pb2.Usage, days: int) -> None:
    console = output.out()
    errors = total.failed + total.timed_out + total.not_started + total.refused
    span = "today" if days == 1 else f"{days} days"
    parts: list[Any] = [(name, "bold"), (f"  {span} · {_count(total.calls, 'call')}", "dim")]
    if errors:
        parts += [(" · ", "dim"), (_count(errors, "error"), "red")]
    if total.cost_micros:
        parts.append((f" · {format_cost(total.cost_micros)}", "dim"))
    console.print(output.text(*parts))
    console.print()


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _style(rate: float) -> str:
    return _GOOD if rate >= 0.99 else "yellow" if rate >= 0.9 else _BAD


def _fact(name: str, *parts: Any) -> None:
    output.out().print(output.text((f"  {name:<9} ", "dim"), *parts))


def _latency_line(latency: usage_pb2.Latency) -> str:
    named = (("p50", latency.p50), ("p95", latency.p95), ("p99", latency.p99), ("max", latency.max))
    return "  ".join(f"{name} {_seconds(value)}" for name, value in named)


def _print_outcome(outcome: str, count: int, calls: int) -> None:
    if not count:
        return
    style = {"succeeded": _GOOD, "failed": _BAD, "timed_out": _BAD}.get(outcome, "yellow")
    line = output.text(
        f"  {outcome.replace('_', ' '):<11} {count:>9,}  ",
        (f"{format_percent(count / calls):>7}  ", "dim"),
        (bar(count, calls, 40), style),
    )
    output.out().print(line)


def _print_reasons(reasons: Sequence[usage_pb2.ReasonCount]) -> None:
    console = output.out()
    for counted in reasons[:_SHOWN_REASONS]:
        console.print(output.text(("    because ", "dim"), _reason(counted.reason), (f"  {counted.count:,}", "dim")))
    rest = reasons[_SHOWN_REASONS:]
    if rest:
        calls = sum(counted.count for counted in rest)
        console.print(output.text((f"    and {len(rest)} more  {calls:,}", "dim")))


def _per_day(counts: Iterable[tuple[Timestamp, int]], coverage: usage_pb2.UsageCoverage) -> list[float]:
    """Return a value for each day of the covered range, including days without calls."""
    first, end = coverage.from_day.seconds // _DAY, coverage.to_day.seconds // _DAY
    values = [0.0] * max(1, end - first)
    for day, count in counts:
        values[day.seconds // _DAY - first] += count
    return values


def _measure(by: str, entry: usage_service_pb2.RankedUsage) -> float:
    if by == "errors":
        return sum(day.errors for day in entry.days)
    if by == "cost":
        return entry.usage.cost_micros
    if by == "latency":
        return entry.usage.latency.mean.ToNanoseconds()
    return entry.usage.calls


def _format_measure(by: str, measure: float, most: float) -> str:
    if by == "latency":
        return format_duration(measure / 1e9) if measure else ""
    return bar(measure, most, 6)


def _name(name: str, what: str) -> str:
    unnamed = _UNNAMED.get(what)
    return display_tool(name) if unnamed is None else name or unnamed


def _seconds(value: Any) -> str:
    return format_duration(value.ToNanoseconds() / 1e9)


def _reason(number: int) -> str:
    from toolmesh.common.v1 import error_reason_pb2

    from toolmesh_sdk.cli.views.documents import enum_label

    return enum_label(error_reason_pb2.ErrorReason.DESCRIPTOR, number)


def _ago(stamp: Timestamp) -> str:
    seconds = max(0, int((datetime.now(UTC) - stamp.ToDatetime(UTC)).total_seconds()))
    for size, unit in ((_DAY, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            return f"{seconds // size} {unit}{'s' if seconds // size > 1 else ''} ago"
    return "just now"
