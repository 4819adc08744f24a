"""OverrideTicket and ReviewOverride: approve without the quorum in an emergency, and review it afterwards."""

from __future__ import annotations

from services.approval.domain.decisions.votes import override, review
from services.approval.domain.lifecycle.change_ticket import change_ticket
from services.approval.domain.model import ReviewState, Ticket
from services.approval.domain.person import Person
from services.approval.domain.ports import ApproverAuthority, Tickets
from services.approval.domain.rules import ApprovalRules


async def override_ticket(
    name: str,
    reason: str,
    etag: str,
    person: Person,
    tickets: Tickets,
    authority: ApproverAuthority,
    rules: ApprovalRules,
) -> Ticket:
    """Return the approved ticket, with an open review. Raises as OverrideTicket of the contract says."""
    await authority.confirm()
    return await change_ticket(
        name, "override", tickets, lambda ticket, now: override(ticket, person, reason, etag, rules, now)
    )


async def review_override(
    name: str, verdict: ReviewState, finding: str, person: Person, tickets: Tickets, authority: ApproverAuthority
) -> Ticket:
    """Return the ticket with its review closed. Raises as ReviewOverride of the contract says."""
    await authority.confirm()
    return await change_ticket(
        name, "review", tickets, lambda ticket, now: review(ticket, person, verdict, finding, now)
    )
