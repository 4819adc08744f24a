"""The contract of the Tickets port, for PostgreSQL and for the store in memory."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from services.approval.domain.model import Verdict
from services.approval.domain.ports import Cursor, Tickets
from services.approval.domain.states import TicketState, Verb
from services.approval.tests.drafts import START, draft, ticket
from services.approval.tests.memory import MemoryTickets

HOUR = timedelta(hours=1)


@pytest.fixture(params=["memory", "postgres"])
def tickets(request: Any) -> Tickets:
    store: Tickets = MemoryTickets() if request.param == "memory" else request.getfixturevalue("postgres_tickets")
    return store


async def test_the_store_returns_a_ticket_unchanged(tickets: Tickets) -> None:
    verdict = Verdict("did:web:example.com:bob", True, "fine", START)
    whole = ticket(preview=b"\x00\xff", escalation_index=1, verdicts=(verdict,))
    await tickets.add(whole)
    assert await tickets.find(whole.ticket_id) == whole
    plain = ticket(draft(requester=replace(draft().requester, expire_time=None, delegation_chain=(), scopes=())))
    await tickets.add(plain)
    assert await tickets.find(plain.ticket_id) == plain


async def test_the_store_returns_none_for_an_unknown_id(tickets: Tickets) -> None:
    assert await tickets.find("none") is None


async def test_the_store_keeps_one_ticket_for_each_request_id(tickets: Tickets) -> None:
    made = draft()
    stored = await asyncio.gather(*(tickets.add(ticket(made)) for _ in range(8)))
    assert len({t.ticket_id for t in stored}) == 1
    assert len(await tickets.page(None, START, None, 10)) == 1


async def test_store_pages_are_newest_first_without_gaps_or_repeats(tickets: Tickets) -> None:
    # Two with each create time, so that the id decides the order.
    made = [ticket(create_time=START + n // 2 * HOUR) for n in range(6)]
    for one in made:
        await tickets.add(one)
    wanted = sorted(made, key=lambda t: (t.create_time, t.ticket_id), reverse=True)
    seen, after = [], None
    while page := await tickets.page(None, START, after, 2):
        seen += page
        after = Cursor(page[-1].create_time, page[-1].ticket_id)
    assert seen == wanted


async def test_a_state_filter_applies_to_the_current_state(tickets: Tickets) -> None:
    soon, late = ticket(), ticket(draft(lifetime=3 * HOUR))
    canceled = ticket().changed(Verb.CANCEL, START)
    for one in (soon, late, canceled):
        await tickets.add(one)

    async def ids(state: TicketState, hours: int) -> set[str]:
        return {t.ticket_id for t in await tickets.page(state, START + hours * HOUR, None, 10)}

    assert await ids(TicketState.PENDING, 0) == {soon.ticket_id, late.ticket_id}
    assert await ids(TicketState.AUTO_DENIED, 0) == set()
    assert await ids(TicketState.PENDING, 1) == {late.ticket_id}
    assert await ids(TicketState.AUTO_DENIED, 1) == {soon.ticket_id}
    assert await ids(TicketState.CANCELED, 9) == {canceled.ticket_id}
    assert await ids(TicketState.APPROVED, 9) == set()


async def test_only_one_of_concurrent_changes_to_a_revision_is_stored(tickets: Tickets) -> None:
    pending = await tickets.add(ticket())
    changes = [pending.changed(verb, START) for verb in (Verb.CANCEL, Verb.APPROVE, Verb.DENY)]
    won = await asyncio.gather(*(tickets.change(change) for change in changes))
    assert sorted(won) == [False, False, True]
    assert await tickets.find(pending.ticket_id) == changes[won.index(True)]


async def test_stored_expiry_equals_the_read_state_and_affects_only_overdue_tickets(tickets: Tickets) -> None:
    over = [await tickets.add(ticket()) for _ in range(3)]
    waiting = await tickets.add(ticket(draft(lifetime=3 * HOUR)))
    approved = await tickets.add(ticket().changed(Verb.APPROVE, START))
    now = START + 2 * HOUR
    assert [await tickets.expire(now, 2), await tickets.expire(now, 2), await tickets.expire(now, 2)] == [2, 1, 0]
    assert [await tickets.find(t.ticket_id) for t in over] == [t.at(now) for t in over]
    assert [await tickets.find(t.ticket_id) for t in (waiting, approved)] == [waiting, approved]


async def test_concurrent_replicas_expire_each_ticket_once(tickets: Tickets) -> None:
    made = [await tickets.add(ticket()) for _ in range(12)]
    now = START + HOUR
    # A sweep skips locked tickets; the last one finds them.
    counts = await asyncio.gather(*(tickets.expire(now, 5) for _ in range(4)))
    counts += [await tickets.expire(now, 100)]
    assert sum(counts) == 12
    assert {(await tickets.find(t.ticket_id)).revision for t in made} == {2}  # type: ignore[union-attr]


async def test_a_tenant_filter_finds_the_tickets_of_its_requesters(tickets: Tickets) -> None:
    made = {
        tenant: await tickets.add(ticket(draft(requester=replace(draft().requester, tenant=tenant))))
        for tenant in ("acme", "globex", "")
    }
    for tenant in ("acme", "globex"):
        for state in (None, TicketState.PENDING):
            assert await tickets.page(state, START, None, 10, tenant=tenant) == [made[tenant]]
    assert len(await tickets.page(None, START, None, 10)) == 3
