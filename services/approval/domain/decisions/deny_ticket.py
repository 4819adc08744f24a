"""DenyTicket: denies a ticket."""

from __future__ import annotations

from services.approval.domain.decisions.votes import deny
from services.approval.domain.lifecycle.change_ticket import change_ticket
from services.approval.domain.model import Ticket
from services.approval.domain.person import Person
from services.approval.domain.ports import ApproverAuthority, Tickets


async def deny_ticket(
    name: str, reason: str, etag: str, person: Person, tickets: Tickets, authority: ApproverAuthority
) -> Ticket:
    """Return the denied ticket. Raises as DenyTicket of the contract says."""
    await authority.confirm()
    return await change_ticket(name, "deny", tickets, lambda ticket, now: deny(ticket, person, reason, etag, now))
