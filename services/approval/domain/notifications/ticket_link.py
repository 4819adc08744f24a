"""Links of notifications: a token that leads a person who is asked to one ticket."""

from __future__ import annotations

from datetime import datetime, timedelta

from services.approval.domain.errors import link_expired, link_used
from services.approval.domain.model import Ticket, TicketLink
from services.approval.domain.person import Person, check_eligible

LIFETIME = timedelta(hours=1)
"""How long a link works. Later the ticket is opened from the list."""


def open_link(link: TicketLink, ticket: Ticket, person: Person, now: datetime) -> None:
    """Return if the person may use the link now.

    Raises SELF_APPROVAL, APPROVER_NOT_ELIGIBLE, TICKET_LINK_USED or TICKET_LINK_EXPIRED.
    """
    check_eligible(person, ticket, frozenset({link.group}))
    if person.subject in link.used_by:
        raise link_used(ticket.name)
    if link.expire_time <= now:
        raise link_expired(ticket.name)
