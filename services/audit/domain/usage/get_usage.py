"""Usage in total and by day."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime

from services.audit.domain.usage.days import days_between
from services.audit.domain.usage.model import DayRange, Progress, UsageFilter, UsageQuery
from services.audit.domain.usage.ports import UsageReader
from services.audit.domain.usage.tally import Tally


@dataclass(frozen=True, slots=True)
class UsageReport:
    """A total and its days."""

    total: Tally
    days: list[tuple[date, Tally]]
    range: DayRange
    progress: Progress


async def get_usage(counts: UsageReader, usage_filter: UsageFilter, now: datetime) -> UsageReport:
    """Return the usage that matches a filter; without calls it is zero."""
    days = days_between(usage_filter.from_time, usage_filter.to_time, now)
    daily = await counts.get_daily_usage(UsageQuery(days, usage_filter.terms()))
    total = Tally()
    for _, tally in daily.days:
        total.merge(tally)
    return UsageReport(total, daily.days, days, daily.progress)
