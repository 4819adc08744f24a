"""The ports of the approval domain."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, Protocol

from services.approval.domain.model import Ticket
from services.approval.domain.states import TicketState


class Cursor(NamedTuple):
    """A position in the list of tickets, which is sorted by create time and id, newest first."""

    create_time: datetime
    ticket_id: str


class Tickets(Protocol):
    """The durable store of tickets. Every change is committed when the method returns."""

    async def add(self, ticket: Ticket) -> Ticket:
        """Store a ticket and return it, or return the stored one with the same request id. Concurrent requests with one
        id store one ticket."""
        ...

    async def find(self, ticket_id: str) -> Ticket | None:
        """Return a ticket as stored."""
        ...

    async def page(
        self, state: TicketState | None, now: datetime, after: Cursor | None, limit: int, *, tenant: str = ""
    ) -> list[Ticket]:
        """Return tickets as stored, newest first, after a cursor. A state filter applies to the state at `now`; an
        empty tenant means all tenants."""
        ...

    async def change(self, ticket: Ticket) -> bool:
        """Store a changed ticket if the stored one still has the previous revision; otherwise return False."""
        ...

    async def expire(self, now: datetime, limit: int) -> int:
        """Expire at most `limit` overdue tickets and return their number. Concurrent replicas do not wait for each
        other, and no ticket expires twice."""
        ...
