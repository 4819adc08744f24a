"""Answers with tickets fit into one message, and every ticket is in one of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from typing import Any

from libs.common.rpc.limits import MAX_MESSAGE_BYTES
from services.approval.convert import ticket_to
from services.approval.domain.model import Ticket
from services.approval.domain.ports import Cursor, TicketQuery
from services.approval.domain.queries.list_tickets import list_tickets
from services.approval.domain.queries.page_bytes import READ_AT_ONCE, count_fitting
from services.approval.domain.queries.watch_tickets import watch_tickets
from services.approval.domain.states import TicketState
from services.approval.tests.drafts import START, draft, ticket

LARGE = b'{"a":"' + b"x" * 65_000 + b'"}'
COUNT = 90


class Store:
    """Large tickets, the newest first."""

    def __init__(self) -> None:
        made = draft(redacted_arguments=LARGE, preview=LARGE, reason="r" * 2000)
        times = [START - timedelta(seconds=number) for number in range(COUNT)]
        self.tickets = [ticket(made, ticket_id=f"t-{n}", create_time=time) for n, time in enumerate(times)]

    async def page(self, query: TicketQuery, after: Cursor | None, size: int) -> Sequence[Ticket]:
        # Rows of many large tickets at once would take the memory of a process.
        assert size <= READ_AT_ONCE
        if query.state not in (None, TicketState.PENDING):
            return []
        return [each for each in self.tickets if after is None or each.create_time < after.create_time][:size]

    async def follow(self, check: Callable[[], None]) -> AsyncIterator[Sequence[Ticket]]:
        yield self.tickets


def sent_bytes(tickets: Sequence[Ticket]) -> int:
    return sum(ticket_to(each).ByteSize() for each in tickets)


async def test_pages_of_large_tickets_fit_and_lead_to_the_end() -> None:
    store: Any = Store()
    seen, token = list[str](), ""
    while True:
        page, token = await list_tickets(TicketQuery(), 1000, token, store)
        assert sent_bytes(page) < MAX_MESSAGE_BYTES
        seen += [each.ticket_id for each in page]
        if not token:
            break
    assert seen == [each.ticket_id for each in store.tickets]


async def test_pieces_of_a_stream_fit_and_hold_every_ticket() -> None:
    store: Any = Store()
    pieces = [piece async for piece in watch_tickets(TicketQuery(), store, store, lambda: None)]
    assert all(sent_bytes(piece.tickets) < MAX_MESSAGE_BYTES for piece in pieces)
    opened = [each.ticket_id for piece in pieces if not piece.synced for each in piece.tickets]
    changed = [each.ticket_id for piece in pieces if piece.synced for each in piece.tickets]
    assert opened == changed == [each.ticket_id for each in store.tickets]


def test_small_tickets_all_fit_and_one_always_does() -> None:
    assert count_fitting([ticket()] * 150) == 150
    assert count_fitting([ticket(draft(redacted_arguments=b"x" * 10**7))]) == 1
    assert count_fitting([]) == 0
