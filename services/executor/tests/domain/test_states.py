"""The states of an invocation."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolmesh.executor.v1 import invocation_pb2 as pb

from services.executor.domain.states import TERMINAL, TRANSITIONS, IllegalTransitionError, State, Track


def track_in(state: State) -> Track:
    """A track that stands in the state, however it came there."""
    track = Track()
    for step in path_to(state):
        track.enter(step)
    return track


def path_to(goal: State) -> list[State]:
    paths: dict[State, list[State]] = {State.PLANNED: []}
    waiting = [State.PLANNED]
    while waiting:
        present = waiting.pop(0)
        for following in sorted(TRANSITIONS[present] - paths.keys()):
            paths[following] = [*paths[present], following]
            waiting.append(following)
    return paths[goal]


def test_the_states_are_those_of_the_contract() -> None:
    named = {name.removeprefix("INVOCATION_STATE_").lower() for name, number in pb.InvocationState.items() if number}
    assert {str(state) for state in State} == named
    assert set(TRANSITIONS) == set(State)


def test_the_terminal_states_are_those_of_the_contract() -> None:
    assert {
        State.SCHEMA_PARSE_FAILED,
        State.VALIDATION_FAILED,
        State.DENIED,
        State.SUCCEEDED,
        State.FAILED,
        State.CANCELED,
        State.TIMED_OUT,
        State.BLOCKED,
    } == TERMINAL


@pytest.mark.parametrize(("present", "asked"), list(product(State, State)))
def test_a_state_is_entered_exactly_if_the_table_leads_there(present: State, asked: State) -> None:
    track = track_in(present)
    steps = track.steps
    if asked in TRANSITIONS[present]:
        track.enter(asked)
        assert (track.previous, track.state) == (present, asked)
    else:
        with pytest.raises(IllegalTransitionError) as caught:
            track.enter(asked)
        assert (caught.value.present, caught.value.asked) == (present, asked)
        assert track.steps == steps


def test_nothing_that_runs_was_not_approved() -> None:
    before_running = {state for state, following in TRANSITIONS.items() if State.RUNNING in following}
    assert before_running <= {State.APPROVED, State.QUEUED, State.NEEDS_INPUT, State.PARTIAL_RESULT, State.YIELDED}
    without_approval = reachable_without(State.APPROVED)
    assert not without_approval & {State.QUEUED, State.RUNNING, State.PARTIAL_RESULT, State.YIELDED, State.SUCCEEDED}


def reachable_without(closed: State) -> set[State]:
    found, waiting = {State.PLANNED}, [State.PLANNED]
    while waiting:
        for following in TRANSITIONS[waiting.pop()] - found - {closed}:
            found.add(following)
            waiting.append(following)
    return found


def test_every_state_under_way_can_fail_be_canceled_and_run_out_of_time() -> None:
    for state in set(State) - TERMINAL:
        assert TRANSITIONS[state] >= {State.FAILED, State.CANCELED, State.TIMED_OUT}


@given(st.lists(st.sampled_from(State), max_size=40))
def test_whatever_is_asked_the_track_only_ever_follows_the_table(asked: list[State]) -> None:
    track = Track()
    for state in asked:
        if track.leads_to(state):
            track.enter(state)
        else:
            with pytest.raises(IllegalTransitionError):
                track.enter(state)
    states = track.steps
    assert states[0] is State.PLANNED
    assert all(after in TRANSITIONS[before] for before, after in pairwise(states))
    assert all(state not in TERMINAL for state in states[:-1])
