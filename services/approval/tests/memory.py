"""A ticket store in memory, for tests of the domain."""

from __future__ import annotations

from datetime import datetime

from services.approval.domain.model import Ticket
from services.approval.domain.ports import Cursor
from services.approval.domain.states import TicketState


class MemoryTickets:
    """Stores tickets in a dictionary."""

    def __init__(self) -> None:
        self.tickets: dict[str, Ticket] = {}

    async def add(self, ticket: Ticket) -> Ticket:
        for other in self.tickets.values():
            if other.draft.request_id == ticket.draft.request_id:
                return other
        self.tickets[ticket.ticket_id] = ticket
        return ticket

    async def find(self, ticket_id: str) -> Ticket | None:
        return self.tickets.get(ticket_id)

    async def page(
        self, state: TicketState | None, now: datetime, after: Cursor | None, limit: int, *, tenant: str = ""
    ) -> list[Ticket]:
        def cursor(ticket: Ticket) -> Cursor:
            return Cursor(ticket.create_time, ticket.ticket_id)

        visible = [t for t in self.tickets.values() if t.is_visible_to(tenant)]
        in_state = [t for t in visible if state in (None, t.at(now).state)]
        following = [t for t in in_state if after is None or cursor(t) < after]
        return sorted(following, key=cursor, reverse=True)[:limit]

    async def change(self, ticket: Ticket) -> bool:
        if self.tickets[ticket.ticket_id].revision != ticket.revision - 1:
            return False
        self.tickets[ticket.ticket_id] = ticket
        return True

    async def expire(self, now: datetime, limit: int) -> int:
        due = [t for t in self.tickets.values() if t.at(now) is not t][:limit]
        for ticket in due:
            self.tickets[ticket.ticket_id] = ticket.at(now)
        return len(due)
