"""What the domain needs from storage."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, Protocol

from services.approval.domain.model import Ticket
from services.approval.domain.states import TicketState


class Place(NamedTuple):
    """A place in the order of tickets: the newest first, and by id among those of one moment."""

    create_time: datetime
    ticket_id: str


class Tickets(Protocol):
    """Keeps tickets durably. What a method returned is on disk."""

    async def add(self, ticket: Ticket) -> Ticket:
        """Store a ticket; return it, or the one that its request id already opened. Concurrent requests with one id store
        one ticket."""
        ...

    async def find(self, ticket_id: str) -> Ticket | None:
        """Return a ticket as stored."""
        ...

    async def page(self, state: TicketState | None, now: datetime, after: Place | None, limit: int) -> list[Ticket]:
        """Return tickets as stored, the newest first, beginning behind a place; only those that are in the state at the
        moment, if one is given."""
        ...

    async def change(self, ticket: Ticket) -> bool:
        """Store what changed, if the ticket is still at the revision before; otherwise store nothing and return False."""
        ...

    async def expire(self, now: datetime, limit: int) -> int:
        """Store the denial of so many tickets whose time is over, and return how many there were. Replicas that do this at
        the same time do not wait for each other, and none denies a ticket twice."""
        ...
