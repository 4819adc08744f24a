"""Listing records page by page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from libs.common import page_tokens
from services.audit.domain.errors import page_token_invalid
from services.audit.domain.log.tenancy import shown_to
from services.audit.domain.model import LAST_SEQUENCE, LoggedRecord, RecordFilter, Span
from services.audit.domain.ports import LogReader

DEFAULT_PAGE_SIZE = 100


@dataclass(frozen=True, slots=True)
class Query:
    """One request for a page."""

    wanted: RecordFilter
    ascending: bool = False
    page_size: int = 0
    page_token: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """A page, and the token of the next; empty after the last."""

    records: list[LoggedRecord]
    next_page_token: str


async def query_records(log: LogReader, query: Query) -> Answer:
    """Return one page. The first page fixes the part of the log that all pages are read from, so that records which are
    appended meanwhile neither shift a page nor prolong the listing."""
    identity = {"filter": query.wanted.terms(), "ascending": query.ascending}
    cursor = page_tokens.decode(identity, query.page_token)
    span = await _whole(log, query) if cursor is None else _continued(cursor, query)
    page = await log.page(query.wanted, span, query.page_size or DEFAULT_PAGE_SIZE)
    found = [record for record in page.records if shown_to(query.wanted.tenant, record)]
    if not page.more:
        return Answer(found, "")
    rest = span.after(page.records[-1].sequence)
    return Answer(found, page_tokens.encode(identity, [rest.first, rest.end]))


async def _whole(log: LogReader, query: Query) -> Span:
    return Span(0, (await log.head()).size, query.ascending)


def _continued(cursor: list[Any], query: Query) -> Span:
    # The token is opaque but not secret: whoever makes one up gets a refusal, not an error of the database.
    if len(cursor) != 2 or not all(type(place) is int and 0 <= place <= LAST_SEQUENCE for place in cursor):
        raise page_token_invalid()
    return Span(cursor[0], cursor[1], query.ascending)
