"""The usage of something, in total and by day."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime

from services.audit.domain.usage.days import days_between
from services.audit.domain.usage.model import Days, Progress, UsageFilter, Wanted
from services.audit.domain.usage.ports import UsageReader
from services.audit.domain.usage.tally import Tally


@dataclass(frozen=True, slots=True)
class UsageAnswer:
    """A total and the days that it is the sum of."""

    total: Tally
    days: list[tuple[date, Tally]]
    range: Days
    progress: Progress


async def get_usage(counts: UsageReader, asked: UsageFilter, now: datetime) -> UsageAnswer:
    """Return the usage of what was asked for; of nothing, if it was never called."""
    days = days_between(asked.from_time, asked.to_time, now)
    found = await counts.by_day(Wanted(days, asked.terms()))
    total = Tally()
    for _, tally in found.days:
        total.merge(tally)
    return UsageAnswer(total, found.days, days, found.progress)
