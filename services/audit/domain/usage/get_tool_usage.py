"""What decisions about tools or versions need to know."""

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
    """Which tool or version, by resource name; which days; which latency was declared, if any."""

    name: str
    from_time: datetime | None = None
    to_time: datetime | None = None
    declared_us: int | None = None
    tenant: str = ""
    """Whose calls alone are told of; empty for everybody's."""


@dataclass(frozen=True, slots=True)
class ToolUsageReport:
    """What was found, and how much of it kept the declared latency."""

    usage: ToolUsage
    range: DayRange
    within_rate: float | None


async def get_tool_usage(
    counts: UsageReader, requests: Sequence[ToolUsageRequest], now: datetime
) -> list[ToolUsageReport]:
    """Return how each tool or version is used; as never called, if it never was."""
    queries = [UsageQuery(days_between(each.from_time, each.to_time, now), _terms(each)) for each in requests]
    usages = await counts.get_tool_usages(queries)
    return [_answer(*each) for each in zip(requests, queries, usages, strict=True)]


def _answer(requests: ToolUsageRequest, queries: UsageQuery, usages: ToolUsage) -> ToolUsageReport:
    within = None if requests.declared_us is None else usages.tally.within_rate(requests.declared_us)
    return ToolUsageReport(usages, queries.days, within)


def _terms(requests: ToolUsageRequest) -> dict[str, str]:
    confined = {"tenant": requests.tenant} if requests.tenant else {}
    if "/versions/" not in requests.name:
        return {"tool": ToolName.parse(requests.name).qualified, **confined}
    tool, version = split_version_name(requests.name)
    return {"tool": tool.qualified, "version": version, **confined}
