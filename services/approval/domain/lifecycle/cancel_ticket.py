"""CancelTicket: withdraws a ticket."""

from __future__ import annotations

from datetime import datetime

from services.approval.domain.errors import ticket_not_found
from services.approval.domain.lifecycle.change_ticket import change_ticket
from services.approval.domain.model import StepKind, Ticket
from services.approval.domain.person import Person
from services.approval.domain.ports import Tickets
from services.approval.domain.states import TicketState, Verb


async def cancel_ticket(name: str, person: Person | None, tickets: Tickets) -> Ticket:
    """Cancel an open ticket; return a canceled one unchanged.

    A person cancels its own tickets only; a peer of the mesh (None) cancels any. Raises NOT_FOUND, and TICKET_CLOSED in
    every other state.
    """
    return await change_ticket(name, Verb.CANCEL, tickets, lambda ticket, now: cancel(ticket, person, now))


def cancel(ticket: Ticket, person: Person | None, now: datetime) -> Ticket:
    """Return the canceled ticket."""
    ticket, requester = ticket.at(now), ticket.draft.requester
    if person is not None and (person.subject, person.tenant) != (requester.subject, requester.tenant):
        raise ticket_not_found(ticket.name)
    if ticket.state is TicketState.CANCELED:
        return ticket
    return ticket.moved(Verb.CANCEL, StepKind.CANCELED, now, actor=person.subject if person is not None else "")
