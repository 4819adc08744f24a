"""Who and what is used most."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from libs.common import page_tokens
from services.audit.domain.usage.days import days_between
from services.audit.domain.usage.errors import page_token_invalid
from services.audit.domain.usage.model import (
    GROUPED_BY,
    Days,
    Group,
    Order,
    Progress,
    Ranked,
    Ranking,
    UsageFilter,
    Wanted,
)
from services.audit.domain.usage.ports import UsageReader

DEFAULT_PAGE_SIZE = 20
_FARTHEST = 1_000_000


@dataclass(frozen=True, slots=True)
class TopQuestion:
    """One request for a page of a ranking."""

    group: Group
    order: Order
    filter: UsageFilter
    page_size: int = 0
    page_token: str = ""


@dataclass(frozen=True, slots=True)
class TopAnswer:
    """A page, and the token of the next; empty after the last."""

    entries: list[Ranked]
    next_page_token: str
    range: Days
    progress: Progress


async def list_top_usage(counts: UsageReader, asked: TopQuestion, now: datetime) -> TopAnswer:
    """Return one page. The first page fixes the days of all of them; the ranking itself is the present one each time."""
    terms = asked.filter.terms()
    times = [str(moment or "") for moment in (asked.filter.from_time, asked.filter.to_time)]
    identity = {"group": asked.group, "order": asked.order, "terms": terms, "times": times}
    cursor = page_tokens.decode(identity, asked.page_token)
    if cursor is None:
        offset, days = 0, days_between(asked.filter.from_time, asked.filter.to_time, now)
    else:
        offset, days = _continued(cursor)
    limit = asked.page_size or DEFAULT_PAGE_SIZE
    wanted = Wanted(days, terms, apart=frozenset(GROUPED_BY[asked.group]))
    found = await counts.ranked(wanted, Ranking(asked.group, asked.order, offset, limit))
    token = ""
    if found.more:
        token = page_tokens.encode(identity, [offset + limit, days.first.toordinal(), days.end.toordinal()])
    return TopAnswer(found.entries, token, days, found.progress)


def _continued(cursor: list[Any]) -> tuple[int, Days]:
    # The token is opaque but not secret: whoever makes one up gets a refusal, not an error of the database.
    if len(cursor) != 3 or not all(type(each) is int for each in cursor):
        raise page_token_invalid()
    offset, first, end = cursor
    if not (0 <= offset <= _FARTHEST and 0 < first < end <= date.max.toordinal()):
        raise page_token_invalid()
    return offset, Days(date.fromordinal(first), date.fromordinal(end))
