"""Questions about usage and what is found."""

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
    """What to count, as it was asked for; what is empty does not narrow."""

    tool: str = ""
    version: str = ""
    subject: str = ""
    task: str = ""
    tenant: str = ""
    from_time: datetime | None = None
    to_time: datetime | None = None

    def terms(self) -> dict[str, str]:
        """Return what narrows, by dimension. A text that cannot be a tool's name raises TOOL_NOT_FOUND."""
        tool = ToolName.parse(self.tool).qualified if self.tool else ""
        named = {"tool": tool, "version": self.version if tool else ""}
        named |= {"subject": self.subject, "task": self.task, "tenant": self.tenant}
        return {name: value for name, value in named.items() if value}


class DayRange(NamedTuple):
    """A range of days, up to just before `end`."""

    first: date
    end: date


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """A question as the counts can answer it."""

    days: DayRange
    terms: dict[str, str]
    apart: frozenset[str] = frozenset()
    """What must be told apart beside what narrows."""

    @property
    def rollup(self) -> Rollup:
        """The coarsest rollup that can answer."""
        return rollup_for(self.apart | self.terms.keys())


class UsageGroup(StrEnum):
    """What a ranking lists."""

    TOOL = "tool"
    VERSION = "version"
    CALLER = "caller"
    TASK = "task"


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
}


@dataclass(frozen=True, slots=True)
class RankingWindow:
    """Which part of which ranking."""

    group: UsageGroup
    order: UsageOrder
    offset: int
    limit: int


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the counts are, and what they could not keep apart."""

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
    """What is known of a tool or a version: since ever, and in a range."""

    first: datetime | None
    last: datetime | None
    tally: Tally
    callers: int
    more_callers: bool
    progress: Progress


class DayCounts(NamedTuple):
    """A day of a ranked entry."""

    day: date
    calls: int
    errors: int


@dataclass(frozen=True, slots=True)
class RankedEntry:
    """One place of a ranking: what it is, as the values that it was grouped by, and its calls."""

    key: tuple[str, ...]
    tally: Tally
    days: list[DayCounts] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RankingPage:
    """A part of a ranking, and whether there is more of it."""

    entries: list[RankedEntry]
    more: bool
    progress: Progress
