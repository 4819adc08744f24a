"""The use of an approval: a pure function from a ticket to the ticket afterwards."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from libs.common.errors import MeshError, Reason
from services.approval.domain.errors import not_redeemable, rejected, self_approval, still_pending, ticket_closed
from services.approval.domain.model import Redemption, StepKind, Ticket
from services.approval.domain.states import TicketState, Verb


def redeem(ticket: Ticket, use: Redemption, now: datetime, *, revoked: Reason | None) -> Ticket:
    """Return the redeemed ticket, or raise why the approval does not hold for this call.

    `revoked` is the reason if a token that the approval relies on was revoked. The same use may redeem again while the
    approval would hold, so that a call that was interrupted goes on.
    """
    ticket = ticket.at(now)
    if (reason := _mismatch(ticket, use)) is not None:
        raise not_redeemable(reason, ticket.name)
    if revoked is not None:
        raise not_redeemable(revoked, ticket.name)
    if (error := _unusable(ticket, use, now)) is not None:
        raise error
    participants = use.requester.participants
    if any(verdict.approved and verdict.approver in participants for verdict in ticket.verdicts):
        raise self_approval()
    if ticket.state is TicketState.REDEEMED:
        return ticket
    redeemed = ticket.moved(Verb.REDEEM, StepKind.REDEEMED, now, actor=use.requester.subject, detail=use.invocation)
    return replace(redeemed, redemption_id=use.redemption_id, redeem_invocation=use.invocation)


def _mismatch(ticket: Ticket, use: Redemption) -> Reason | None:
    """Return how the call differs from the approved one."""
    draft = ticket.draft
    if draft.requester.identity != use.requester.identity:
        return Reason.TICKET_CALLER_MISMATCH
    if (draft.tool_version, draft.tool_digest) != (use.tool_version, use.tool_digest):
        return Reason.TICKET_TOOL_CHANGED
    if draft.arguments_digest != use.arguments_digest:
        return Reason.TICKET_ARGUMENTS_CHANGED
    if draft.policy_set_version != use.policy_set_version:
        return Reason.TICKET_POLICY_CHANGED
    return None


def _unusable(ticket: Ticket, use: Redemption, now: datetime) -> MeshError | None:
    """Return why the state of the ticket does not allow its use."""
    state = ticket.state
    if state is TicketState.APPROVED:
        return None
    if state is TicketState.PENDING:
        return still_pending(ticket.name)
    if state is TicketState.REDEEMED:
        until = ticket.approval_expire_time
        repeated = ticket.redemption_id == use.redemption_id and until is not None and now < until
        return None if repeated else not_redeemable(Reason.TICKET_REDEEMED, ticket.name)
    if state is TicketState.EXPIRED:
        return not_redeemable(Reason.TICKET_EXPIRED, ticket.name)
    if state is TicketState.CANCELED:
        return ticket_closed(state, Verb.REDEEM)
    return rejected(ticket.name, state)
