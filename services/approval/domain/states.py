"""The state machine of tickets."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from services.approval.domain.errors import ticket_closed


class TicketState(StrEnum):
    """The states of a ticket. All but the first two are final."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    AUTO_DENIED = "auto_denied"
    CANCELED = "canceled"
    REDEEMED = "redeemed"
    EXPIRED = "expired"


OPEN = frozenset({TicketState.PENDING, TicketState.APPROVED})


class Verb(StrEnum):
    """The transitions of a ticket."""

    APPROVE = "approve"
    DENY = "deny"
    TIME_OUT = "time_out"
    CANCEL = "cancel"
    REDEEM = "redeem"
    LAPSE = "lapse"


TRANSITIONS: Mapping[tuple[TicketState, Verb], TicketState] = {
    (TicketState.PENDING, Verb.APPROVE): TicketState.APPROVED,
    (TicketState.PENDING, Verb.DENY): TicketState.DENIED,
    # Time alone never approves: it denies, or ends an approval.
    (TicketState.PENDING, Verb.TIME_OUT): TicketState.AUTO_DENIED,
    (TicketState.PENDING, Verb.CANCEL): TicketState.CANCELED,
    # An approval can be redeemed once, and be taken back until then.
    (TicketState.APPROVED, Verb.REDEEM): TicketState.REDEEMED,
    (TicketState.APPROVED, Verb.DENY): TicketState.DENIED,
    (TicketState.APPROVED, Verb.CANCEL): TicketState.CANCELED,
    (TicketState.APPROVED, Verb.LAPSE): TicketState.EXPIRED,
}


def next_state(state: TicketState, verb: Verb) -> TicketState:
    """Return the state after a transition. Raises TICKET_CLOSED if it is not allowed."""
    following = TRANSITIONS.get((state, verb))
    if following is None:
        raise ticket_closed(state, verb)
    return following
