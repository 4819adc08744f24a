"""OpenTicketLink: uses the link of a notification, once for each person."""

from __future__ import annotations

from libs.common.errors import MeshError, Reason
from services.approval.domain.errors import ticket_not_found
from services.approval.domain.model import Ticket, ticket_id_of
from services.approval.domain.notifications.ticket_link import open_link
from services.approval.domain.person import Person, check_eligible
from services.approval.domain.ports import ApproverAuthority, TicketLinks, Tickets


async def open_ticket_link(
    name: str, token: str, person: Person, links: TicketLinks, tickets: Tickets, authority: ApproverAuthority
) -> Ticket:
    """Return the ticket of a link. Raises as OpenTicketLink of the contract says; refused attempts are recorded."""
    await authority.confirm()
    ticket = await tickets.find(ticket_id_of(name))
    if ticket is None:
        raise ticket_not_found(name)
    try:
        check_eligible(person, ticket, frozenset(ticket.draft.escalation_chain))
        if not await links.use(ticket.ticket_id, token, person, lambda link, now: open_link(link, ticket, person, now)):
            raise ticket_not_found(name)
    except MeshError as error:
        if error.reason not in (Reason.NOT_FOUND, Reason.SERVICE_UNAVAILABLE):
            await tickets.record_refusal(ticket, "open_link", error)
        raise
    return ticket
