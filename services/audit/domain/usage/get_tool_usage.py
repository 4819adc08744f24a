"""Usage of single tools or versions, as decisions about them need it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from libs.common.tool_names import ToolName, split_version_name
from services.audit.domain.usage.days import days_between
from services.audit.domain.usage.model import DayRange, ToolUsage, UsageQuery
from services.audit.domain.usage.ports import UsageReader


@dataclass(frozen=True, slots=True)
class ToolUsageRequest:
    """A tool or version by resource name, a time range, and the declared latency, if any."""

    name: str
    from_time: datetime | None = None
    to_time: datetime | None = None
    declared_us: int | None = None
    tenant: str = ""
    """Counts only the calls of this tenant; empty: of all."""


@dataclass(frozen=True, slots=True)
class ToolUsageReport:
    """The usage, and the share of calls within the declared latency."""

    usage: ToolUsage
    range: DayRange
    within_rate: float | None


async def get_tool_usage(
    counts: UsageReader, requests: Sequence[ToolUsageRequest], now: datetime
) -> list[ToolUsageReport]:
    """Return the usage of each tool or version; without calls it is zero."""
    queries = [
        UsageQuery(days_between(request.from_time, request.to_time, now), _terms(request)) for request in requests
    ]
    usages = await counts.get_tool_usages(queries)
    return [_report(*parts) for parts in zip(requests, queries, usages, strict=True)]


def _report(request: ToolUsageRequest, query: UsageQuery, usage: ToolUsage) -> ToolUsageReport:
    within = None if request.declared_us is None else usage.tally.within_rate(request.declared_us)
    return ToolUsageReport(usage, query.days, within)


def _terms(request: ToolUsageRequest) -> dict[str, str]:
    confined = {"tenant": request.tenant} if request.tenant else {}
    if "/versions/" not in request.name:
        return {"tool": ToolName.parse(request.name).qualified, **confined}
    tool, version = split_version_name(request.name)
    return {"tool": tool.qualified, "version": version, **confined}
