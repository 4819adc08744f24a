"""RedeemTicket: uses an approval, once."""

from __future__ import annotations

from datetime import datetime

from services.approval.domain.change_ticket import change_ticket
from services.approval.domain.model import Redemption, Ticket
from services.approval.domain.ports import Revocations, Tickets
from services.approval.domain.redemption import redeem


async def redeem_ticket(
    name: str, use: Redemption, tickets: Tickets, revocations: Revocations, *, validate_only: bool
) -> Ticket:
    """Return the redeemed ticket, or the approved one if it is only validated. Raises as RedeemTicket says."""

    def change(ticket: Ticket, now: datetime) -> Ticket:
        revoked = revocations.revoked(ticket.draft.requester, ticket.create_time)
        redeemed = redeem(ticket, use, now, revoked=revoked)
        return ticket if validate_only else redeemed

    return await change_ticket(name, "redeem", tickets, change)
