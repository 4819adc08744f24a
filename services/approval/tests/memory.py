"""Tickets in memory: the port's other adapter, for tests of the domain."""

from __future__ import annotations

from datetime import datetime

from services.approval.domain.model import Ticket
from services.approval.domain.ports import Place
from services.approval.domain.states import TicketState


class MemoryTickets:
    """Keeps tickets in a dictionary."""

    def __init__(self) -> None:
        self.kept: dict[str, Ticket] = {}

    async def add(self, ticket: Ticket) -> Ticket:
        for other in self.kept.values():
            if other.draft.request_id == ticket.draft.request_id:
                return other
        self.kept[ticket.ticket_id] = ticket
        return ticket

    async def find(self, ticket_id: str) -> Ticket | None:
        return self.kept.get(ticket_id)

    async def page(self, state: TicketState | None, now: datetime, after: Place | None, limit: int) -> list[Ticket]:
        def place(ticket: Ticket) -> Place:
            return Place(ticket.create_time, ticket.ticket_id)

        found = [t for t in self.kept.values() if state in (None, t.at(now).state)]
        behind = [t for t in found if after is None or place(t) < after]
        return sorted(behind, key=place, reverse=True)[:limit]

    async def change(self, ticket: Ticket) -> bool:
        if self.kept[ticket.ticket_id].revision != ticket.revision - 1:
            return False
        self.kept[ticket.ticket_id] = ticket
        return True

    async def expire(self, now: datetime, limit: int) -> int:
        due = [t for t in self.kept.values() if t.at(now) is not t][:limit]
        for ticket in due:
            self.kept[ticket.ticket_id] = ticket.at(now)
        return len(due)
