"""The state machine of tickets."""

from __future__ import annotations

from itertools import product

import pytest
from toolmesh.approval.v1 import ticket_pb2

from libs.common.errors import MeshError, Reason
from services.approval.domain.states import TRANSITIONS, TicketState, Verb, next_state


def test_ticket_transitions_are_exactly_these() -> None:
    assert {(state.value, verb.value): reached.value for (state, verb), reached in TRANSITIONS.items()} == {
        ("pending", "approve"): "approved",
        ("pending", "deny"): "denied",
        ("pending", "expire"): "auto_denied",
        ("pending", "cancel"): "canceled",
        ("approved", "redeem"): "redeemed",
    }


@pytest.mark.parametrize(("state", "verb"), list(product(TicketState, Verb)))
def test_next_state_follows_the_table_and_refuses_every_other_transition(state: TicketState, verb: Verb) -> None:
    if (state, verb) in TRANSITIONS:
        assert next_state(state, verb) is TRANSITIONS[state, verb]
        return
    with pytest.raises(MeshError) as caught:
        next_state(state, verb)
    assert caught.value.reason is Reason.FAILED_PRECONDITION
    assert caught.value.metadata == {"state": state.value, "verb": verb.value}


def test_ticket_states_are_those_of_the_contract() -> None:
    named = {name.removeprefix("TICKET_STATE_") for name in ticket_pb2.TicketState.keys()}  # noqa: SIM118
    assert named == {state.name for state in TicketState} | {"UNSPECIFIED"}
