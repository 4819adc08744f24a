"""The people who read and decide tickets, and what each may do."""

from __future__ import annotations

from dataclasses import dataclass

from services.approval.domain.errors import etag_mismatch, not_eligible, self_approval, ticket_not_found
from services.approval.domain.model import Ticket

READ_SCOPE, DECIDE_SCOPE, OVERRIDE_SCOPE = "approvals:read", "approvals:decide", "approvals:override"


@dataclass(frozen=True, slots=True)
class Person:
    """The caller of an RPC about tickets, by its verified token."""

    subject: str
    tenant: str = ""
    groups: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()
    token_id: str = ""
    delegated: bool = False
    """True if an agent acts for the person. Decisions are made in person."""

    def may_see(self, ticket: Ticket) -> bool:
        """Return whether the person may see a ticket: its own, one that asks its groups, or any by scope."""
        draft = ticket.draft
        if self.tenant and self.tenant != draft.requester.tenant:
            return False
        own = self.subject == draft.requester.subject
        return own or READ_SCOPE in self.scopes or not self.groups.isdisjoint(draft.escalation_chain)

    def may_decide(self, ticket: Ticket) -> bool:
        """Return whether the person may decide about a ticket: a group of its own is asked, and it has no part."""
        requester = ticket.draft.requester
        visible = not self.tenant or self.tenant == requester.tenant
        return visible and self.subject not in requester.participants and not self.groups.isdisjoint(ticket.groups)


def check_eligible(person: Person, ticket: Ticket, groups: frozenset[str] | None = None) -> None:
    """Return if the person may decide about the ticket, as a member of these groups or of those that it asks.

    Raises NOT_FOUND for a ticket that the person may not see, SELF_APPROVAL, or APPROVER_NOT_ELIGIBLE.
    """
    requester = ticket.draft.requester
    if person.tenant and person.tenant != requester.tenant:
        raise ticket_not_found(ticket.name)
    if person.subject in requester.participants:
        raise self_approval()
    if person.delegated:
        raise not_eligible("delegated")
    if person.groups.isdisjoint(ticket.groups if groups is None else groups):
        raise not_eligible("group")


def check_etag(ticket: Ticket, etag: str) -> None:
    """Return if the ticket is the one that the person saw. An empty etag accepts any."""
    if etag and etag != ticket.etag:
        raise etag_mismatch(ticket.etag)
