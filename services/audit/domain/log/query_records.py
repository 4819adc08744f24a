"""Lists records page by page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from libs.common import page_tokens
from services.audit.domain.errors import page_token_invalid
from services.audit.domain.log.tenancy import is_visible_to
from services.audit.domain.model import LAST_SEQUENCE, LoggedRecord, RecordFilter, Span
from services.audit.domain.ports import LogReader

DEFAULT_PAGE_SIZE = 100


@dataclass(frozen=True, slots=True)
class RecordQuery:
    """A request for one page."""

    filter: RecordFilter
    ascending: bool = False
    page_size: int = 0
    page_token: str = ""


@dataclass(frozen=True, slots=True)
class RecordPage:
    """A page and the token of the next one; the token is empty on the last page."""

    records: list[LoggedRecord]
    next_page_token: str


async def query_records(log: LogReader, query: RecordQuery) -> RecordPage:
    """Return one page. The first page fixes the range of sequences for all pages, so records appended later do not
    change the listing."""
    identity = {"filter": query.filter.terms(), "ascending": query.ascending}
    cursor = page_tokens.decode(identity, query.page_token)
    span = await _whole_log(log, query) if cursor is None else _span_from_cursor(cursor, query)
    page = await log.page(query.filter, span, query.page_size or DEFAULT_PAGE_SIZE)
    visible = [record for record in page.records if is_visible_to(query.filter.tenant, record)]
    if not page.more:
        return RecordPage(visible, "")
    rest = span.after(page.records[-1].sequence)
    return RecordPage(visible, page_tokens.encode(identity, [rest.first, rest.end]))


async def _whole_log(log: LogReader, query: RecordQuery) -> Span:
    return Span(0, (await log.head()).size, query.ascending)


def _span_from_cursor(cursor: list[Any], query: RecordQuery) -> Span:
    # Tokens are opaque but not signed: a forged one must be refused here, not by the database.
    if len(cursor) != 2 or not all(type(bound) is int and 0 <= bound <= LAST_SEQUENCE for bound in cursor):
        raise page_token_invalid()
    return Span(cursor[0], cursor[1], query.ascending)
