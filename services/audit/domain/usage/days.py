"""Resolves the time range of a query to whole days."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

from services.audit.domain.usage.errors import days_out_of_range
from services.audit.domain.usage.model import DayRange

DEFAULT_DAYS = 30
MAX_DAYS = 400


def days_between(from_time: datetime | None, to_time: datetime | None, now: datetime) -> DayRange:
    """Return the whole UTC days that a range touches. It ends today by default, and covers 30 days by default. A range
    that is empty, too long or outside the calendar raises INVALID_REQUEST."""
    try:
        end = now.astimezone(UTC).date() + timedelta(days=1) if to_time is None else _end(to_time)
        first = end - timedelta(days=DEFAULT_DAYS) if from_time is None else from_time.astimezone(UTC).date()
    except OverflowError:
        raise days_out_of_range(MAX_DAYS) from None
    if not 0 < (end - first).days <= MAX_DAYS:
        raise days_out_of_range(MAX_DAYS)
    return DayRange(first, end)


def _end(moment: datetime) -> date:
    moment = moment.astimezone(UTC)
    # A range that ends at midnight excludes the day that begins then.
    return moment.date() if moment.time() == time() else moment.date() + timedelta(days=1)
