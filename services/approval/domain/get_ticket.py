"""GetTicket: reads one ticket."""

from __future__ import annotations

from libs.common.runtime.clock import Clock
from services.approval.domain.errors import ticket_not_found
from services.approval.domain.model import Ticket
from services.approval.domain.ports import Tickets

_PREFIX = "tickets/"


async def get_ticket(name: str, tickets: Tickets, clock: Clock, *, tenant: str = "") -> Ticket:
    """Return the ticket in its current state. Raises NOT_FOUND, also for a ticket of another tenant than the reader's;
    a reader without a tenant sees all tickets."""
    ticket = await tickets.find(name.removeprefix(_PREFIX))
    if ticket is None or not ticket.is_visible_to(tenant):
        raise ticket_not_found(name)
    return ticket.at(clock.now())
