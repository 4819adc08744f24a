"""The states of an invocation and the transitions between them."""

from __future__ import annotations

import pytest
from toolmesh.executor.v1 import invocation_pb2 as pb

from services.executor.domain.states import TERMINAL, TRANSITIONS, IllegalTransitionError, State, StateHistory

# Written out, not computed: a transition that is added or removed in the table has to be added or removed here too.
EXPECTED = {
    "planned": {"selected", "blocked", "validation_failed", "denied", "failed", "canceled", "timed_out"},
    "selected": {
        "arguments_ready",
        "schema_parse_failed",
        "validation_failed",
        "blocked",
        "failed",
        "canceled",
        "timed_out",
    },
    "arguments_ready": {
        "pre_hooks_running",
        "awaiting_approval",
        "approved",
        "denied",
        "blocked",
        "failed",
        "canceled",
        "timed_out",
    },
    "pre_hooks_running": {
        "validation_failed",
        "awaiting_approval",
        "approved",
        "denied",
        "blocked",
        "failed",
        "canceled",
        "timed_out",
    },
    "awaiting_approval": {"approved", "denied", "blocked", "failed", "canceled", "timed_out"},
    "approved": {
        "queued",
        "running",
        "post_hooks_running",
        "succeeded",
        "denied",
        "blocked",
        "validation_failed",
        "failed",
        "canceled",
        "timed_out",
    },
    "queued": {"running", "yielded", "denied", "blocked", "failed", "canceled", "timed_out"},
    "running": {
        "needs_input",
        "partial_result",
        "post_hooks_running",
        "yielded",
        "succeeded",
        "failed",
        "canceled",
        "timed_out",
    },
    "needs_input": {"running", "yielded", "failed", "canceled", "timed_out"},
    "partial_result": {
        "running",
        "post_hooks_running",
        "yielded",
        "succeeded",
        "failed",
        "canceled",
        "timed_out",
    },
    "post_hooks_running": {"yielded", "succeeded", "failed", "canceled", "timed_out"},
    "yielded": {
        "running",
        "needs_input",
        "partial_result",
        "post_hooks_running",
        "succeeded",
        "failed",
        "canceled",
        "timed_out",
    },
    "schema_parse_failed": set[str](),
    "validation_failed": set[str](),
    "denied": set[str](),
    "succeeded": set[str](),
    "failed": set[str](),
    "canceled": set[str](),
    "timed_out": set[str](),
    "blocked": set[str](),
}


def history_in(*steps: str) -> StateHistory:
    history = StateHistory()
    for step in steps:
        history.enter(State(step))
    return history


def test_the_transition_table_is_exactly_the_expected_one() -> None:
    assert {str(state): {str(following) for following in TRANSITIONS[state]} for state in TRANSITIONS} == EXPECTED


def test_the_states_are_those_of_the_proto() -> None:
    named = {name.removeprefix("INVOCATION_STATE_").lower() for name, number in pb.InvocationState.items() if number}
    assert {str(state) for state in State} == named


def test_the_terminal_states_are_those_without_transitions() -> None:
    assert set(TERMINAL) == {
        "schema_parse_failed",
        "validation_failed",
        "denied",
        "succeeded",
        "failed",
        "canceled",
        "timed_out",
        "blocked",
    }


def test_a_history_keeps_its_states_in_order() -> None:
    history = history_in("selected", "arguments_ready", "approved", "running", "succeeded")
    assert (history.state, history.previous) == (State.SUCCEEDED, State.RUNNING)
    assert history.path == "planned selected arguments_ready approved running succeeded"
    assert StateHistory().previous is None


@pytest.mark.parametrize(
    ("steps", "refused"),
    [
        ((), "running"),
        ((), "planned"),
        (("selected",), "approved"),
        (("selected", "arguments_ready"), "running"),
        (("selected", "arguments_ready", "awaiting_approval"), "running"),
        (("selected", "arguments_ready", "approved", "running"), "denied"),
        (("selected", "arguments_ready", "denied"), "approved"),
        (("selected", "arguments_ready", "approved", "running", "succeeded"), "running"),
        (("failed",), "selected"),
    ],
)
def test_an_illegal_transition_raises_and_changes_nothing(steps: tuple[str, ...], refused: str) -> None:
    history = history_in(*steps)
    before = history.steps
    assert not history.leads_to(State(refused))
    with pytest.raises(IllegalTransitionError) as caught:
        history.enter(State(refused))
    assert (caught.value.current, caught.value.requested) == (before[-1], State(refused))
    assert (history.steps, history.state) == (before, before[-1])
