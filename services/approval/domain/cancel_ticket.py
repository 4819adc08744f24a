"""CancelTicket: cancels a pending ticket."""

from __future__ import annotations

from libs.common.runtime.clock import Clock
from services.approval.domain.errors import too_contended
from services.approval.domain.get_ticket import get_ticket
from services.approval.domain.model import Ticket
from services.approval.domain.ports import Tickets
from services.approval.domain.states import TicketState, Verb

# A pending ticket changes only a few times before it is resolved, which ends the loop.
_ATTEMPTS = 5


async def cancel_ticket(name: str, tickets: Tickets, clock: Clock) -> Ticket:
    """Cancel a pending ticket; return a canceled one unchanged.

    Raises NOT_FOUND, and FAILED_PRECONDITION in every other state. Of concurrent changes one wins, and the others see
    it.
    """
    for _ in range(_ATTEMPTS):
        ticket = await get_ticket(name, tickets, clock)
        if ticket.state is TicketState.CANCELED:
            return ticket
        canceled = ticket.changed(Verb.CANCEL, clock.now())
        if await tickets.change(canceled):
            return canceled
    raise too_contended()
