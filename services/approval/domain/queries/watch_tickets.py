"""WatchTickets: streams the open tickets, and then each change."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from services.approval.domain.model import Ticket
from services.approval.domain.ports import Cursor, TicketChanges, TicketQuery, Tickets
from services.approval.domain.queries.page_bytes import READ_AT_ONCE, count_fitting
from services.approval.domain.states import OPEN


class WatchedTickets(NamedTuple):
    """One piece of the live list."""

    tickets: Sequence[Ticket]
    synced: bool
    """True once all tickets that were open at the beginning were yielded."""


async def watch_tickets(
    query: TicketQuery, tickets: Tickets, changes: TicketChanges, check: Callable[[], None]
) -> AsyncIterator[WatchedTickets]:
    """Yield the open tickets of a query page by page, then the changes. What `check` raises ends the stream."""
    synced = False
    async for changed in changes.follow(check):
        if not synced:
            # Changes are followed by now, so none is missed between the list and the first change.
            async for page in _open_tickets(query, tickets):
                for piece in _pieces(page):
                    yield WatchedTickets(piece, synced=False)
            synced = True
            yield WatchedTickets((), synced=True)
        for piece in _pieces([ticket for ticket in changed if query.selects(ticket)]):
            yield WatchedTickets(piece, synced=True)


async def _open_tickets(query: TicketQuery, tickets: Tickets) -> AsyncIterator[Sequence[Ticket]]:
    for state in sorted(OPEN):
        after: Cursor | None = None
        while page := await tickets.page(replace(query, state=state), after, READ_AT_ONCE):
            yield page
            after = Cursor(page[-1].create_time, page[-1].ticket_id)


def _pieces(tickets: Sequence[Ticket]) -> Iterator[Sequence[Ticket]]:
    """Yield the tickets in pieces that fit into one message each."""
    while tickets:
        count = count_fitting(tickets)
        yield tickets[:count]
        tickets = tickets[count:]
