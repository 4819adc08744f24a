"""How an invocation ends, and what its records say."""

from __future__ import annotations

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.testing.clock import ManualClock
from services.executor.domain.audit_records import decision_record, outcome_record, terminal_state
from services.executor.domain.invocation import Invocation
from services.executor.domain.model import Event, PayloadDigest, Status
from services.executor.domain.states import State
from services.executor.tests.samples import a_decision, a_request, a_tool

RUNNING = (State.SELECTED, State.ARGUMENTS_READY, State.APPROVED, State.RUNNING)


def an_invocation(*states: State) -> Invocation:
    invocation = Invocation(a_request(), ManualClock(), None)
    for state in states:
        invocation.enter(state)
    return invocation


@pytest.mark.parametrize(
    ("states", "reason", "end"),
    [
        ((), Reason.TOOL_NOT_FOUND, State.BLOCKED),
        ((), Reason.TOOL_DEPRECATED, State.BLOCKED),
        ((), Reason.INVALID_REQUEST, State.VALIDATION_FAILED),
        (RUNNING[:1], Reason.INVALID_JSON, State.SCHEMA_PARSE_FAILED),
        (RUNNING[:1], Reason.ARGUMENTS_INVALID, State.VALIDATION_FAILED),
        (RUNNING[:2], Reason.TOKEN_REVOKED, State.DENIED),
        (RUNNING[:3], Reason.IDEMPOTENCY_CONFLICT, State.FAILED),
        (RUNNING, Reason.ARGUMENTS_INVALID, State.FAILED),
        (RUNNING, Reason.TOKEN_EXPIRED, State.FAILED),
        (RUNNING, Reason.TOOL_TIMEOUT, State.TIMED_OUT),
        (RUNNING, Reason.INVOCATION_CANCELED, State.CANCELED),
        (RUNNING, Reason.INTERNAL, State.FAILED),
    ],
)
def test_a_failure_ends_in_the_state_that_its_reason_names_where_one_can_get_there(
    states: tuple[State, ...], reason: Reason, end: State
) -> None:
    assert terminal_state(an_invocation(*states), MeshError(reason)) is end


@pytest.mark.parametrize("reason", list(Reason))
@pytest.mark.parametrize("length", range(5))
def test_every_reason_has_an_end_wherever_it_strikes(reason: Reason, length: int) -> None:
    invocation = an_invocation(*RUNNING[:length])
    invocation.enter(terminal_state(invocation, MeshError(reason)))


def test_a_decision_that_lets_the_call_run_is_only_a_beginning() -> None:
    invocation = an_invocation(*RUNNING[:3])
    invocation.tool, invocation.decision = a_tool(), a_decision()
    record = decision_record(invocation)
    assert (record.event, record.status, record.reason) == (Event.PERMISSION_DECIDED, Status.BEGUN, None)
    assert record.latency is None


def test_an_outcome_follows_its_decision_and_says_how_long_it_took() -> None:
    clock = ManualClock()
    invocation = Invocation(a_request(), clock, None)
    for state in (*RUNNING, State.SUCCEEDED):
        invocation.enter(state)
    invocation.decision_record, invocation.attempts = "decision-record", 1
    clock.advance(1.5)
    record = outcome_record(invocation, result=PayloadDigest("sha256:r"))
    assert (record.event, record.status, record.latency) == (Event.SUCCEEDED, Status.SUCCESS, 1.5)
    assert (record.follows, record.attempt, record.result) == ("decision-record", 1, PayloadDigest("sha256:r"))
    assert (record.previous_state, record.state) == (State.RUNNING, State.SUCCEEDED)
