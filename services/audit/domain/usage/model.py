"""Queries and results of usage."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime
from enum import StrEnum
from typing import NamedTuple

from libs.common.tool_names import ToolName
from services.audit.domain.usage.cells import Rollup, rollup_for
from services.audit.domain.usage.tally import Tally


@dataclass(frozen=True, slots=True)
class UsageFilter:
    """Criteria of a request. Empty fields do not filter."""

    tool: str = ""
    version: str = ""
    subject: str = ""
    task: str = ""
    tenant: str = ""
    from_time: datetime | None = None
    to_time: datetime | None = None

    def terms(self) -> dict[str, str]:
        """Return the criteria by dimension. A text that cannot be a tool name raises TOOL_NOT_FOUND."""
        tool = ToolName.parse(self.tool).qualified if self.tool else ""
        named = {"tool": tool, "version": self.version if tool else ""}
        named |= {"subject": self.subject, "task": self.task, "tenant": self.tenant}
        return {name: value for name, value in named.items() if value}


class DayRange(NamedTuple):
    """Days from `first` to `end` (exclusive)."""

    first: date
    end: date


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """A query of the cells: days, equality terms by dimension, and dimensions to group by."""

    days: DayRange
    terms: dict[str, str]
    group_by: frozenset[str] = frozenset()
    """Dimensions that the result distinguishes, beside the terms."""

    @property
    def rollup(self) -> Rollup:
        """The coarsest rollup that can answer the query."""
        return rollup_for(self.group_by | self.terms.keys())


class UsageGroup(StrEnum):
    """What a ranking lists."""

    TOOL = "tool"
    VERSION = "version"
    CALLER = "caller"
    TASK = "task"
    TENANT = "tenant"


class UsageOrder(StrEnum):
    """What a ranking is ordered by."""

    CALLS = "calls"
    ERRORS = "errors"
    COST = "cost"
    LATENCY = "latency"


GROUPED_BY: dict[UsageGroup, tuple[str, ...]] = {
    UsageGroup.TOOL: ("tool",),
    UsageGroup.VERSION: ("tool", "version"),
    UsageGroup.CALLER: ("subject",),
    UsageGroup.TASK: ("task",),
    UsageGroup.TENANT: ("tenant",),
}


@dataclass(frozen=True, slots=True)
class RankingWindow:
    """A part of a ranking."""

    group: UsageGroup
    order: UsageOrder
    offset: int
    limit: int


@dataclass(frozen=True, slots=True)
class Progress:
    """How far counting is, and how many calls were folded."""

    counted: int
    log_records: int
    folded_calls: int = 0


@dataclass(frozen=True, slots=True)
class DailyUsage:
    """Totals by day."""

    days: list[tuple[date, Tally]]
    progress: Progress


@dataclass(frozen=True, slots=True)
class ToolUsage:
    """Usage of a tool or version: first and last call ever, the rest within the queried days."""

    first: datetime | None
    last: datetime | None
    tally: Tally
    callers: int
    more_callers: bool
    progress: Progress


class DayCounts(NamedTuple):
    """One day of a ranked entry."""

    day: date
    calls: int
    errors: int


@dataclass(frozen=True, slots=True)
class RankedEntry:
    """An entry of a ranking: the values of its grouping dimensions, its tally and its days."""

    key: tuple[str, ...]
    tally: Tally
    days: list[DayCounts] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RankingPage:
    """A part of a ranking, and whether there is more."""

    entries: list[RankedEntry]
    more: bool
    progress: Progress
