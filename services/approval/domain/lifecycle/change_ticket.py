"""Changes a ticket by a verb, and records refused attempts."""

from __future__ import annotations

from datetime import datetime

from libs.common.errors import MeshError, Reason
from services.approval.domain.errors import ticket_not_found
from services.approval.domain.model import Ticket, ticket_id_of
from services.approval.domain.ports import Change, Tickets

# A ticket that the person may not see is not shown to exist, and a pending one is not misused.
_NOT_RECORDED = frozenset({Reason.NOT_FOUND, Reason.INVALID_REQUEST, Reason.APPROVAL_REQUIRED, Reason.ETAG_MISMATCH})


async def change_ticket(name: str, verb: str, tickets: Tickets, change: Change) -> Ticket:
    """Return the changed ticket. Raises NOT_FOUND, and what the change raises, which is recorded."""
    seen: list[Ticket] = []

    def attempt(ticket: Ticket, now: datetime) -> Ticket:
        seen[:] = [ticket.at(now)]
        return change(ticket, now)

    try:
        changed = await tickets.change(ticket_id_of(name), attempt)
    except MeshError as error:
        if seen and error.reason not in _NOT_RECORDED and error.reason is not Reason.SERVICE_UNAVAILABLE:
            await tickets.record_refusal(seen[0], verb, error)
        raise
    if changed is None:
        raise ticket_not_found(name)
    return changed
