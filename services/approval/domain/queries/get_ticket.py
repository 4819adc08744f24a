"""GetTicket: reads one ticket."""

from __future__ import annotations

from services.approval.domain.errors import ticket_not_found
from services.approval.domain.model import Ticket, ticket_id_of
from services.approval.domain.person import Person
from services.approval.domain.ports import Tickets


async def get_ticket(name: str, tickets: Tickets, reader: Person | None) -> Ticket:
    """Return the ticket in its current state. Raises NOT_FOUND, also for a ticket that the reader may not see; a peer
    of the mesh (None) sees all."""
    ticket = await tickets.find(ticket_id_of(name))
    if ticket is None or not (reader is None or reader.may_see(ticket)):
        raise ticket_not_found(name)
    return ticket
