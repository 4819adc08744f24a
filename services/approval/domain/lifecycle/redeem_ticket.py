"""RedeemTicket: uses an approval, once."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from libs.common.errors import MeshError, Reason
from services.approval.domain.lifecycle.cancel_ticket import cancel
from services.approval.domain.lifecycle.change_ticket import change_ticket
from services.approval.domain.lifecycle.redemption import redeem
from services.approval.domain.model import Redemption, Ticket, ticket_id_of
from services.approval.domain.ports import Revocations, Tickets

# Such an approval can never be used. Its ticket is closed, so that the call can ask for another one.
_VOID = frozenset({Reason.TICKET_TOKEN_REVOKED, Reason.TICKET_APPROVER_REVOKED})


async def redeem_ticket(
    name: str, use: Redemption, tickets: Tickets, revocations: Revocations, *, validate_only: bool
) -> Ticket:
    """Return the redeemed ticket, or the approved one if it is only validated. Raises as RedeemTicket says."""

    def change(ticket: Ticket, now: datetime) -> Ticket:
        redeemed = redeem(ticket, use, now, revoked=revocations.find_revoked(ticket))
        return ticket if validate_only else redeemed

    try:
        return await change_ticket(name, "redeem", tickets, change)
    except MeshError as error:
        if error.reason in _VOID:
            await _close(name, tickets)
        raise


async def _close(name: str, tickets: Tickets) -> None:
    # The caller gets the reason of the refusal, also if this fails.
    with suppress(MeshError):
        await tickets.change(ticket_id_of(name), lambda ticket, now: _canceled(ticket.at(now), now))


def _canceled(ticket: Ticket, now: datetime) -> Ticket:
    return cancel(ticket, None, now) if ticket.is_open else ticket
