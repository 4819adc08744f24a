"""Every state, every verb, every pair."""

from __future__ import annotations

from itertools import product

import pytest
from toolmesh.approval.v1 import ticket_pb2

from libs.common.errors import MeshError, Reason
from services.approval.domain.states import TRANSITIONS, TicketState, Verb, after

S, V = TicketState, Verb
LEGAL = {
    (S.PENDING, V.APPROVE): S.APPROVED,
    (S.PENDING, V.DENY): S.DENIED,
    (S.PENDING, V.EXPIRE): S.AUTO_DENIED,
    (S.PENDING, V.CANCEL): S.CANCELED,
    (S.APPROVED, V.REDEEM): S.REDEEMED,
}


@pytest.mark.parametrize(("state", "verb"), list(product(S, V)))
def test_a_verb_leads_where_it_should_or_nowhere(state: TicketState, verb: Verb) -> None:
    if (state, verb) in LEGAL:
        assert after(state, verb) is LEGAL[state, verb]
        return
    with pytest.raises(MeshError) as caught:
        after(state, verb)
    assert caught.value.reason is Reason.FAILED_PRECONDITION
    assert caught.value.metadata == {"state": state.value, "verb": verb.value}


def test_final_states_are_left_by_nothing() -> None:
    final = set(S) - {state for state, _ in TRANSITIONS}
    assert final == {S.DENIED, S.AUTO_DENIED, S.CANCELED, S.REDEEMED}


def test_only_an_approval_can_be_redeemed() -> None:
    assert [state for state, verb in TRANSITIONS if verb is V.REDEEM] == [S.APPROVED]


def test_the_contract_knows_the_same_states() -> None:
    named = {name.removeprefix("TICKET_STATE_") for name in ticket_pb2.TicketState.keys()}  # noqa: SIM118
    assert named == {state.name for state in S} | {"UNSPECIFIED"}
