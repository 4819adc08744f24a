"""Where a ticket can be, and what moves it. There is no other way from one state to another."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from services.approval.domain.errors import wrong_state


class TicketState(StrEnum):
    """Where a ticket is. All but the first two are final."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    AUTO_DENIED = "auto_denied"
    CANCELED = "canceled"
    REDEEMED = "redeemed"


class Verb(StrEnum):
    """What can happen to a ticket. Time is a verb too: it expires what nobody decided."""

    APPROVE = "approve"
    DENY = "deny"
    EXPIRE = "expire"
    CANCEL = "cancel"
    REDEEM = "redeem"


TRANSITIONS: Mapping[tuple[TicketState, Verb], TicketState] = {
    (TicketState.PENDING, Verb.APPROVE): TicketState.APPROVED,
    (TicketState.PENDING, Verb.DENY): TicketState.DENIED,
    (TicketState.PENDING, Verb.EXPIRE): TicketState.AUTO_DENIED,
    (TicketState.PENDING, Verb.CANCEL): TicketState.CANCELED,
    # An approval is used once; nothing leads back.
    (TicketState.APPROVED, Verb.REDEEM): TicketState.REDEEMED,
}


def after(state: TicketState, verb: Verb) -> TicketState:
    """Return the state that a verb leads to; FAILED_PRECONDITION where it leads nowhere."""
    reached = TRANSITIONS.get((state, verb))
    if reached is None:
        raise wrong_state(state, verb)
    return reached
