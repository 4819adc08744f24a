"""Rankings of tools, callers and tasks by usage."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from libs.common import page_tokens
from services.audit.domain.usage.days import days_between
from services.audit.domain.usage.errors import page_token_invalid
from services.audit.domain.usage.model import (
    GROUPED_BY,
    DayRange,
    Progress,
    RankedEntry,
    RankingWindow,
    UsageFilter,
    UsageGroup,
    UsageOrder,
    UsageQuery,
)
from services.audit.domain.usage.ports import UsageReader

DEFAULT_PAGE_SIZE = 20
_MAX_OFFSET = 1_000_000


@dataclass(frozen=True, slots=True)
class TopUsageRequest:
    """A request for one page of a ranking."""

    group: UsageGroup
    order: UsageOrder
    filter: UsageFilter
    page_size: int = 0
    page_token: str = ""


@dataclass(frozen=True, slots=True)
class TopUsagePage:
    """A page and the token of the next one; the token is empty on the last page."""

    entries: list[RankedEntry]
    next_page_token: str
    range: DayRange
    progress: Progress


async def list_top_usage(counts: UsageReader, request: TopUsageRequest, now: datetime) -> TopUsagePage:
    """Return one page. The first page fixes the days of all pages; the ranking itself is read again for each page."""
    terms = request.filter.terms()
    times = [str(moment or "") for moment in (request.filter.from_time, request.filter.to_time)]
    identity = {"group": request.group, "order": request.order, "terms": terms, "times": times}
    cursor = page_tokens.decode(identity, request.page_token)
    if cursor is None:
        offset, days = 0, days_between(request.filter.from_time, request.filter.to_time, now)
    else:
        offset, days = _parse_cursor(cursor)
    limit = request.page_size or DEFAULT_PAGE_SIZE
    query = UsageQuery(days, terms, group_by=frozenset(GROUPED_BY[request.group]))
    ranking = await counts.get_ranking(query, RankingWindow(request.group, request.order, offset, limit))
    token = ""
    if ranking.more:
        token = page_tokens.encode(identity, [offset + limit, days.first.toordinal(), days.end.toordinal()])
    return TopUsagePage(ranking.entries, token, days, ranking.progress)


def _parse_cursor(cursor: list[Any]) -> tuple[int, DayRange]:
    # Tokens are opaque but not signed: a forged one must be refused here, not by the database.
    if len(cursor) != 3 or not all(type(value) is int for value in cursor):
        raise page_token_invalid()
    offset, first, end = cursor
    if not (0 <= offset <= _MAX_OFFSET and 0 < first < end <= date.max.toordinal()):
        raise page_token_invalid()
    return offset, DayRange(date.fromordinal(first), date.fromordinal(end))
