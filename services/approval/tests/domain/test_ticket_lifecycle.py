"""The use cases, with a store in memory."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.page_tokens import encode
from libs.common.testing.clock import ManualClock
from services.approval.domain.cancel_ticket import cancel_ticket
from services.approval.domain.create_ticket import create_ticket
from services.approval.domain.expire_tickets import BATCH, expire_tickets
from services.approval.domain.get_ticket import get_ticket
from services.approval.domain.list_tickets import list_tickets
from services.approval.domain.model import Requester, Ticket
from services.approval.domain.states import TicketState, Verb
from services.approval.tests.drafts import draft, ticket
from services.approval.tests.memory import MemoryTickets


async def refusal(awaited: Any) -> MeshError:
    with pytest.raises(MeshError) as caught:
        await awaited
    return caught.value


@pytest.mark.parametrize(
    "arguments",
    [b"[]", b'"x"', b"{", b'{"a":1,"a":2}', b'{"n":18446744073709551616}', b'{"n":NaN}', b'{"s":"\\ud800"}', b"null"],
)
async def test_arguments_are_a_strict_object(arguments: bytes) -> None:
    store = MemoryTickets()
    error = await refusal(create_ticket(draft(redacted_arguments=arguments), store, ManualClock()))
    assert error.reason is Reason.INVALID_JSON
    assert store.tickets == {}


async def test_all_violations_of_a_request_are_reported_at_once() -> None:
    made = draft(reason="a\0b", escalation_chain=("fine", "\0"), requester=Requester(subject="", scopes=("\0",)))
    error = await refusal(create_ticket(made, MemoryTickets(), ManualClock()))
    assert error.reason is Reason.INVALID_REQUEST
    paths = {"reason", "escalation_chain[1]", "requester.subject", "requester.scopes[0]"}
    assert {v.path for v in error.violations} == paths


async def test_a_repeated_request_returns_the_current_state_of_its_ticket() -> None:
    store, clock, made = MemoryTickets(), ManualClock(), draft()
    first = await create_ticket(made, store, clock)
    clock.advance(3600)
    again = await create_ticket(made, store, clock)
    assert (again.ticket_id, again.state) == (first.ticket_id, TicketState.AUTO_DENIED)


class Contended(MemoryTickets):
    """A store in which a concurrent change wins a number of times."""

    def __init__(self, times: int, verb: Verb | None) -> None:
        super().__init__()
        self._times, self._verb = times, verb

    async def change(self, ticket: Ticket) -> bool:
        if self._times:
            self._times -= 1
            stored = self.tickets[ticket.ticket_id]
            if self._verb is not None:
                self.tickets[ticket.ticket_id] = stored.changed(self._verb, stored.create_time)
            return False
        return await super().change(ticket)


async def test_a_cancel_that_loses_against_an_approval_is_refused() -> None:
    store, clock = Contended(1, Verb.APPROVE), ManualClock()
    pending = await store.add(ticket())
    error = await refusal(cancel_ticket(pending.name, store, clock))
    assert (error.reason, error.metadata["state"]) == (Reason.FAILED_PRECONDITION, "approved")


async def test_concurrent_cancels_succeed_once() -> None:
    store, clock = Contended(1, Verb.CANCEL), ManualClock()
    pending = await store.add(ticket())
    assert (await cancel_ticket(pending.name, store, clock)).state is TicketState.CANCELED


async def test_a_contended_cancel_is_retried_and_gives_up_in_the_end() -> None:
    store, clock = Contended(4, None), ManualClock()
    pending = await store.add(ticket())
    assert (await cancel_ticket(pending.name, store, clock)).state is TicketState.CANCELED
    store = Contended(99, None)
    await store.add(pending)
    error = await refusal(cancel_ticket(pending.name, store, clock))
    assert error.reason is Reason.SERVICE_UNAVAILABLE


async def test_an_overdue_ticket_cannot_be_canceled_before_its_expiry_is_stored() -> None:
    store, clock = MemoryTickets(), ManualClock()
    pending = await store.add(ticket())
    clock.advance(3600)
    error = await refusal(cancel_ticket(pending.name, store, clock))
    assert (error.reason, error.metadata["state"]) == (Reason.FAILED_PRECONDITION, "auto_denied")
    assert store.tickets[pending.ticket_id] is pending


@pytest.mark.parametrize(
    "cursor",
    [
        [],
        [1],
        ["x", "y"],
        [1, "y"],
        ["2026-01-01T00:00:00", "naive"],
        [None, None],
        ["2026-01-01T00:00:00+00:00", "\0"],
    ],
)
async def test_an_invalid_page_cursor_is_refused(cursor: list[Any]) -> None:
    token = encode({"list": "tickets", "state": None}, cursor)
    error = await refusal(list_tickets(None, 0, token, MemoryTickets(), ManualClock()))
    assert error.reason is Reason.PAGE_TOKEN_INVALID


async def test_the_page_size_may_change_and_the_query_may_not() -> None:
    store, clock = MemoryTickets(), ManualClock()
    for n in range(5):
        await store.add(ticket(create_time=clock.now() + timedelta(seconds=n)))
    first, token = await list_tickets(None, 2, "", store, clock)
    rest, end = await list_tickets(None, 10, token, store, clock)
    assert (len(first), len(rest), end) == (2, 3, "")
    error = await refusal(list_tickets(TicketState.PENDING, 2, token, store, clock))
    assert error.reason is Reason.PAGE_TOKEN_INVALID


async def test_a_page_that_is_exactly_full_is_the_last() -> None:
    store, clock = MemoryTickets(), ManualClock()
    for _ in range(100):
        await store.add(ticket())
    page, token = await list_tickets(None, 0, "", store, clock)
    assert (len(page), token) == (100, "")


async def test_expiry_continues_until_no_ticket_is_overdue() -> None:
    store, clock = MemoryTickets(), ManualClock()
    for _ in range(BATCH + 1):
        await store.add(ticket())
    clock.advance(3600)
    assert await expire_tickets(store, clock) == BATCH + 1
    assert await expire_tickets(store, clock) == 0


async def test_an_unknown_ticket_is_not_found() -> None:
    error = await refusal(get_ticket("tickets/none", MemoryTickets(), ManualClock()))
    assert (error.reason, error.metadata["name"]) == (Reason.NOT_FOUND, "tickets/none")
