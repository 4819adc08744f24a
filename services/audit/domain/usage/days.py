"""Which days a question is about."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

from services.audit.domain.usage.errors import days_out_of_range
from services.audit.domain.usage.model import DayRange

DEFAULT_DAYS = 30
MAX_DAYS = 400


def days_between(from_time: datetime | None, to_time: datetime | None, now: datetime) -> DayRange:
    """Return the whole days, in UTC, that a range touches: without an end until today, without a beginning thirty of
    them. A range that is empty, too long or outside the calendar raises INVALID_REQUEST."""
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
    # A range that ends at midnight ends with the day before.
    return moment.date() if moment.time() == time() else moment.date() + timedelta(days=1)
