"""ApproveTicket: votes for a ticket."""

from __future__ import annotations

from services.approval.domain.decisions.votes import approve
from services.approval.domain.lifecycle.change_ticket import change_ticket
from services.approval.domain.model import Ticket
from services.approval.domain.person import Person
from services.approval.domain.ports import ApproverAuthority, Tickets
from services.approval.domain.rules import ApprovalRules


async def approve_ticket(
    name: str,
    reason: str,
    etag: str,
    person: Person,
    tickets: Tickets,
    authority: ApproverAuthority,
    rules: ApprovalRules,
) -> Ticket:
    """Return the ticket after the vote. Raises as ApproveTicket of the contract says."""
    await authority.confirm()
    return await change_ticket(
        name, "approve", tickets, lambda ticket, now: approve(ticket, person, reason, etag, rules, now)
    )
