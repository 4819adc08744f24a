"""Lists tickets, a page at a time."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from libs.common import page_tokens
from libs.common.runtime.clock import Clock
from services.approval.domain.errors import page_token_invalid
from services.approval.domain.model import Ticket
from services.approval.domain.ports import Place, Tickets
from services.approval.domain.states import TicketState

DEFAULT_PAGE = 100


async def list_tickets(
    state: TicketState | None, page_size: int, page_token: str, tickets: Tickets, clock: Clock
) -> tuple[list[Ticket], str]:
    """Return a page, the newest first, and the token of the next; an empty token after the last page.

    A ticket whose time is over counts as denied, also before that is written down. A token of another query raises
    PAGE_TOKEN_INVALID; the size of pages may change from page to page.
    """
    query = {"list": "tickets", "state": state}
    after = _place(page_tokens.decode(query, page_token))
    size, now = page_size or DEFAULT_PAGE, clock.now()
    # One more than asked for tells whether there is a next page.
    found = await tickets.page(state, now, after, size + 1)
    page = [ticket.at(now) for ticket in found[:size]]
    if len(found) <= size:
        return page, ""
    last = page[-1]
    return page, page_tokens.encode(query, [last.create_time.isoformat(), last.ticket_id])


def _place(cursor: list[Any] | None) -> Place | None:
    if cursor is None:
        return None
    try:
        moment, ticket_id = cursor
        place = Place(datetime.fromisoformat(moment), str(ticket_id))
    except (ValueError, TypeError):
        raise page_token_invalid() from None
    if place.create_time.tzinfo is None or "\0" in place.ticket_id:
        raise page_token_invalid()
    return place
