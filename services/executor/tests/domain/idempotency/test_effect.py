"""What a failed call changed: nothing where the mesh knows, and unknown elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.runtime.clock import SystemClock
from services.executor.domain import errors, run_errors
from services.executor.domain.idempotency.effect import FailureEffect, describe_effect, effect_of_failure
from services.executor.domain.invocation import Invocation
from services.executor.domain.tool import Mutation, Tool, UncertainOutcome
from services.executor.tests.samples import a_request, a_write_tool

NONE, UNKNOWN, DECIDED = FailureEffect.NONE, FailureEffect.UNKNOWN, FailureEffect.DECIDED
TIMEOUT, FAILED = MeshError(Reason.TOOL_TIMEOUT), MeshError(Reason.EXECUTION_FAILED)


def a_run(tool: Tool, **state: Any) -> Invocation:
    invocation = Invocation(a_request(idempotency_key=state.pop("key", "k")), SystemClock(), None)
    invocation.tool, invocation.attempts = tool, 1
    for name, value in state.items():
        setattr(invocation, name, value)
    return invocation


@pytest.mark.parametrize(
    ("tool", "state", "error", "effect"),
    [
        (a_write_tool(), {"attempts": 0}, TIMEOUT, NONE),
        (a_write_tool(), {"preview": True}, TIMEOUT, NONE),
        (a_write_tool(mutation=Mutation.READ_ONLY), {}, TIMEOUT, NONE),
        (a_write_tool(), {}, TIMEOUT, UNKNOWN),
        (a_write_tool(), {}, FAILED, DECIDED),
        (a_write_tool(volumes_only=True), {}, TIMEOUT, NONE),
        (a_write_tool(volumes_only=True), {}, FAILED, DECIDED),
        (a_write_tool(volumes_only=True), {"committing": True}, run_errors.partly_kept(0, 2, "changed"), NONE),
        (a_write_tool(volumes_only=True), {"committing": True}, run_errors.partly_kept(1, 2, "failed"), UNKNOWN),
        (a_write_tool(), {"committing": True}, run_errors.partly_kept(0, 2, "changed"), UNKNOWN),
    ],
)
def test_the_effect_of_a_failure(tool: Tool, state: dict[str, Any], error: MeshError, effect: FailureEffect) -> None:
    assert effect_of_failure(a_run(tool, **state), error) is effect


def test_a_failure_under_a_lost_claim_is_unknown_unless_only_volumes_could_change() -> None:
    assert effect_of_failure(a_run(a_write_tool()), FAILED, held=False) is UNKNOWN
    assert effect_of_failure(a_run(a_write_tool(volumes_only=True)), FAILED, held=False) is NONE


@pytest.mark.parametrize(
    ("tool", "state", "retryable"),
    [
        (a_write_tool(), {}, False),
        (a_write_tool(), {"key": ""}, False),
        (a_write_tool(repeatable=True), {}, True),
        (a_write_tool(uncertain=UncertainOutcome.QUERY_STATUS), {}, True),
        (a_write_tool(uncertain=UncertainOutcome.QUERY_STATUS), {"key": ""}, False),
        (a_write_tool(volumes_only=True), {}, True),
        (a_write_tool(volumes_only=True), {"committing": True}, False),
        (a_write_tool(volumes_only=True), {"committing": True, "prepared": True}, True),
    ],
)
def test_an_error_is_retryable_only_if_a_retry_is_safe(tool: Tool, state: dict[str, Any], retryable: bool) -> None:
    error, run = MeshError(Reason.TOOL_TIMEOUT), a_run(tool, **state)
    describe_effect(run, error)
    assert error.retryable is retryable
    assert error.metadata["effect"] == effect_of_failure(run, error)


@pytest.mark.parametrize(("attempts", "ran"), [(0, "false"), (1, "true")])
def test_an_exceeded_deadline_states_whether_the_tool_ran(attempts: int, ran: str) -> None:
    error = errors.deadline_exceeded()
    describe_effect(a_run(a_write_tool(), attempts=attempts), error)
    assert error.metadata["tool_ran"] == ran
