"""ListTickets: lists tickets in pages."""

from __future__ import annotations

from typing import Any

from libs.common import page_tokens
from services.approval.domain.model import Ticket
from services.approval.domain.ports import Cursor, TicketQuery, Tickets
from services.approval.domain.queries.page_bytes import READ_AT_ONCE, count_fitting

DEFAULT_PAGE = 100


async def list_tickets(
    query: TicketQuery, page_size: int, page_token: str, tickets: Tickets
) -> tuple[list[Ticket], str]:
    """Return a page, newest first, and the next page token, which is empty after the last page.

    An overdue ticket counts as denied, also before that is stored. A token of another query raises PAGE_TOKEN_INVALID;
    the page size may change from page to page. A page has fewer tickets where so many do not fit into one answer.
    """
    bound = _binding(query)
    cursor = page_tokens.decode_time_cursor(bound, page_token)
    after = None if cursor is None else Cursor(*cursor)
    size = page_size or DEFAULT_PAGE
    # One extra ticket shows whether there is a next page.
    stored = await _read(query, after, size + 1, tickets)
    page = stored[: count_fitting(stored[:size])]
    if len(stored) == len(page):
        return page, ""
    last = page[-1]
    return page, page_tokens.encode(bound, [last.create_time.isoformat(), last.ticket_id])


async def _read(query: TicketQuery, after: Cursor | None, wanted: int, tickets: Tickets) -> list[Ticket]:
    """Read so many tickets in pieces, and no more than it takes to fill one answer."""
    stored: list[Ticket] = []
    while len(stored) < wanted:
        limit = min(READ_AT_ONCE, wanted - len(stored))
        piece = await tickets.page(query, after, limit)
        stored += piece
        if len(piece) < limit or count_fitting(stored) < len(stored):
            break
        after = Cursor(piece[-1].create_time, piece[-1].ticket_id)
    return stored


def _binding(query: TicketQuery) -> dict[str, Any]:
    reader = query.reader
    who = [reader.subject, reader.tenant] if reader is not None else []
    return {"list": "tickets", "state": query.state, "view": query.view, "reader": who}
