"""What decisions about tools or versions need to know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from libs.common.tool_names import ToolName, split_version_name
from services.audit.domain.usage.days import days_between
from services.audit.domain.usage.model import Days, ToolFound, Wanted
from services.audit.domain.usage.ports import UsageReader


@dataclass(frozen=True, slots=True)
class ToolQuestion:
    """Which tool or version, by resource name; which days; which latency was declared, if any."""

    name: str
    from_time: datetime | None = None
    to_time: datetime | None = None
    declared_us: int | None = None
    tenant: str = ""
    """Whose calls alone are told of; empty for everybody's."""


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What was found, and how much of it kept the declared latency."""

    found: ToolFound
    range: Days
    within_rate: float | None


async def get_tool_usage(counts: UsageReader, asked: Sequence[ToolQuestion], now: datetime) -> list[ToolAnswer]:
    """Return how each tool or version is used; as never called, if it never was."""
    wanted = [Wanted(days_between(each.from_time, each.to_time, now), _terms(each)) for each in asked]
    found = await counts.of_tools(wanted)
    return [_answer(*each) for each in zip(asked, wanted, found, strict=True)]


def _answer(asked: ToolQuestion, wanted: Wanted, found: ToolFound) -> ToolAnswer:
    within = None if asked.declared_us is None else found.tally.within_rate(asked.declared_us)
    return ToolAnswer(found, wanted.days, within)


def _terms(asked: ToolQuestion) -> dict[str, str]:
    confined = {"tenant": asked.tenant} if asked.tenant else {}
    if "/versions/" not in asked.name:
        return {"tool": ToolName.parse(asked.name).qualified, **confined}
    tool, version = split_version_name(asked.name)
    return {"tool": tool.qualified, "version": version, **confined}
