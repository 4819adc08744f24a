"""The periodic task that stores expiry."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path

import orjson

from libs.common.errors import MeshError, Reason
from libs.common.telemetry.log import Log
from libs.common.testing.clock import ManualClock
from services.approval.adapters.postgres_tickets import PostgresTickets
from services.approval.adapters.sweeper import expiry_sweeper
from services.approval.domain.model import Ticket
from services.approval.domain.states import TicketState
from services.approval.tests.drafts import ticket
from services.approval.tests.memory import MemoryTickets


class FlakyTickets(MemoryTickets):
    """A store that fails twice and then signals when a ticket expired."""

    def __init__(self) -> None:
        super().__init__()
        self.failures = 2
        self.expired = asyncio.Event()

    async def expire(self, now: datetime, limit: int) -> int:
        if self.failures:
            self.failures -= 1
            raise MeshError(Reason.SERVICE_UNAVAILABLE)
        count = await super().expire(now, limit)
        if count:
            self.expired.set()
        return count


async def test_the_sweeper_survives_an_unavailable_store(tmp_path: Path) -> None:
    store, clock = FlakyTickets(), ManualClock()
    pending = await store.add(ticket())
    clock.advance(3600)
    path = tmp_path / "log"
    with path.open("wb") as file:
        sweeper = expiry_sweeper(store, clock, Log("approval", descriptor=file.fileno()), interval=0)
        await sweeper.start()
        await asyncio.wait_for(store.expired.wait(), 10)
        await sweeper.stop()
    assert store.tickets[pending.ticket_id].state is TicketState.AUTO_DENIED
    events = [orjson.loads(line)["level"] for line in path.read_bytes().splitlines()]
    assert events[:2] == ["error", "error"]


async def test_two_sweepers_on_one_database_expire_each_ticket_once(postgres_tickets: PostgresTickets) -> None:
    clock = ManualClock()
    made = [await postgres_tickets.add(ticket()) for _ in range(20)]
    clock.advance(3600)
    sweepers = [expiry_sweeper(postgres_tickets, clock, Log("approval", level="error"), interval=0) for _ in range(2)]
    for sweeper in sweepers:
        await sweeper.start()
    async with asyncio.timeout(20):
        while await _waiting(postgres_tickets, made):
            continue
    for sweeper in sweepers:
        await sweeper.stop()
    stored = [await postgres_tickets.find(t.ticket_id) for t in made]
    assert stored == [t.at(clock.now()) for t in made]


async def _waiting(store: PostgresTickets, made: list[Ticket]) -> bool:
    found = [await store.find(t.ticket_id) for t in made]
    return any(t is not None and t.state is TicketState.PENDING for t in found)


async def test_a_sweeper_that_was_never_started_can_be_stopped() -> None:
    await expiry_sweeper(MemoryTickets(), ManualClock(), Log("approval", level="error")).stop()
