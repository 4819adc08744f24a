"""The state machine of tickets."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from services.approval.domain.errors import wrong_state


class TicketState(StrEnum):
    """The states of a ticket. All but the first two are final."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    AUTO_DENIED = "auto_denied"
    CANCELED = "canceled"
    REDEEMED = "redeemed"


class Verb(StrEnum):
    """The transitions of a ticket."""

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
    # An approval can be redeemed once.
    (TicketState.APPROVED, Verb.REDEEM): TicketState.REDEEMED,
}


def next_state(state: TicketState, verb: Verb) -> TicketState:
    """Return the state after a transition. Raises FAILED_PRECONDITION if it is not allowed."""
    following = TRANSITIONS.get((state, verb))
    if following is None:
        raise wrong_state(state, verb)
    return following
