"""Retries: when the mesh allows them, with the same key, after the stated delay, inside the caller's timeout."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from toolmesh.executor.v1 import executor_service_pb2, result_envelope_pb2
from toolmesh.registry.v1 import registry_service_pb2
from toolmesh_sdk import (
    DeadlineExceededError,
    InvalidInputError,
    RateLimitedError,
    Reason,
    RetryPolicy,
    ToolmeshError,
    UpstreamFailureError,
    derive_idempotency_key,
)
from toolmesh_sdk._wire.retry import Attempts, RetryBudget
from toolmesh_sdk.errors import error_for_reason

from libs.common.errors import MeshError

DONE = executor_service_pb2.InvokeResponse(
    result=result_envelope_pb2.ResultEnvelope(
        status=result_envelope_pb2.RESULT_STATUS_SUCCEEDED, structured_content=b'{"ok":true}'
    )
)
BUSY = MeshError(Reason.AUDIT_UNAVAILABLE)
LOST = grpc.StatusCode.UNAVAILABLE


async def test_a_retryable_answer_is_retried_with_the_same_key_and_trace(
    drive: Any, mesh: Any, serve: Callable[..., str]
) -> None:
    mesh.answer("Invoke", BUSY, LOST, DONE)
    client = drive(serve())
    result = await client.do("call", "pay", {"cents": 5}, idempotency_key="order-17")
    assert result.content == {"ok": True}
    calls = mesh.of("Invoke")
    assert [call.request.idempotency_key for call in calls] == ["order-17"] * 3
    assert len({call.metadata["traceparent"] for call in calls}) == 1
    assert len({call.request.arguments for call in calls}) == 1
    assert len(client.pauses) == 2


@pytest.mark.parametrize(("options", "made"), [({}, 1), ({"idempotency_key": "order-17"}, 2)])
async def test_what_the_edge_lost_is_repeated_only_under_a_key(
    drive: Any, mesh: Any, serve: Callable[..., str], options: dict[str, str], made: int
) -> None:
    mesh.answer("Invoke", MeshError(Reason.SERVICE_UNAVAILABLE, metadata={"outcome": "unknown"}), DONE)
    client = drive(serve())
    if made == 1:
        with pytest.raises(UpstreamFailureError) as caught:
            await client.do("call", "pay", **options)
        assert caught.value.answered is False
    else:
        assert (await client.do("call", "pay", **options)).content == {"ok": True}
    assert len(mesh.of("Invoke")) == made


async def test_a_step_is_retried_under_the_key_that_every_process_derives_for_it(
    drive: Any, mesh: Any, serve: Callable[..., str]
) -> None:
    mesh.answer("Invoke", BUSY, LOST, DONE)
    client = drive(serve(), key_secret="secret")
    await client.do("call", "pay", {"cents": 5}, step="step-3", session_id="session-1")
    mesh.answer("Invoke", DONE)
    restarted = drive(serve(), key_secret=b"secret")
    await restarted.do("call", "pay", {"cents": 5}, step="step-3", session_id="session-1")
    expected = derive_idempotency_key("secret", "session-1", "pay", "step-3", {"cents": 5})
    assert [call.request.idempotency_key for call in mesh.of("Invoke")] == [expected] * 4
    assert {call.request.session_id for call in mesh.of("Invoke")} == {"session-1"}


async def test_a_step_of_a_client_without_a_secret_is_not_sent(
    drive: Any, mesh: Any, serve: Callable[..., str]
) -> None:
    mesh.answer("Invoke", DONE)
    with pytest.raises(ValueError):
        await drive(serve()).do("call", "pay", step="step-3")
    assert mesh.of("Invoke") == []


async def test_the_limit_of_lost_calls_is_not_one_of_answered_calls(
    drive: Any, mesh: Any, serve: Callable[..., str]
) -> None:
    patient = drive(serve(), retry=RetryPolicy(lost_attempts=1))
    mesh.answer("Invoke", BUSY, BUSY, DONE)
    assert (await patient.do("call", "echo")).content == {"ok": True}
    mesh.answer("Invoke", LOST, DONE)
    with pytest.raises(UpstreamFailureError):
        await patient.do("call", "echo", idempotency_key="order-17")
    assert len(mesh.of("Invoke")) == 4


async def test_an_answer_that_is_not_retryable_ends_the_call(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("Invoke", MeshError(Reason.ARGUMENTS_INVALID), DONE)
    client = drive(serve())
    with pytest.raises(InvalidInputError):
        await client.do("call", "pay", idempotency_key="order-17")
    assert (len(mesh.of("Invoke")), client.pauses) == (1, [])


async def test_a_retryable_answer_is_retried_without_a_key_too(
    drive: Any, mesh: Any, serve: Callable[..., str]
) -> None:
    mesh.answer("Invoke", BUSY, DONE)
    await drive(serve()).do("call", "echo")
    assert len(mesh.of("Invoke")) == 2


async def test_a_lost_call_without_a_key_is_not_repeated(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("Invoke", LOST, DONE)
    with pytest.raises(UpstreamFailureError) as caught:
        await drive(serve()).do("call", "pay")
    assert (len(mesh.of("Invoke")), caught.value.attempts) == (1, 1)


async def test_a_lost_read_is_repeated(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("GetTool", LOST, LOST, registry_service_pb2.GetToolResponse())
    await drive(serve()).do("get_tool", "echo")
    assert len(mesh.of("GetTool")) == 3


async def test_a_busy_mesh_is_tried_until_it_answers(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("Invoke", *[BUSY] * 12, DONE)
    client = drive(serve())
    result = await client.do("call", "echo", {"a": 1}, idempotency_key="order-17", timeout=3600)
    assert (result.content, len(client.pauses)) == ({"ok": True}, 12)
    assert {call.request.idempotency_key for call in mesh.of("Invoke")} == {"order-17"}


async def test_a_policy_may_bound_the_attempts(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("Invoke", BUSY)
    client = drive(serve(), retry=RetryPolicy(attempts=4))
    with pytest.raises(UpstreamFailureError) as caught:
        await client.do("call", "echo")
    assert (len(mesh.of("Invoke")), caught.value.attempts, len(client.pauses)) == (4, 4, 3)


async def test_the_retries_of_a_client_have_one_budget(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    """The pauses of these calls take no time, so that the budget does not fill again."""
    mesh.answer("Invoke", BUSY)
    client = drive(serve())
    for _ in range(2):
        with pytest.raises(UpstreamFailureError):
            await client.do("call", "echo", timeout=3600)
    assert 100 <= len(client.pauses) < 200


RAN = [
    MeshError(Reason.AUDIT_UNAVAILABLE, metadata={"tool_ran": "true"}),
    MeshError(Reason.TOOL_CRASHED),
    MeshError(Reason.INTERNAL),
    MeshError(Reason.DEADLINE_EXCEEDED),
]


@pytest.mark.parametrize("error", RAN, ids=lambda error: error.reason.name)
async def test_a_call_that_may_have_run_is_repeated_only_under_a_key(
    drive: Any, mesh: Any, serve: Callable[..., str], error: MeshError
) -> None:
    client = drive(serve())
    mesh.answer("Invoke", error, DONE)
    with pytest.raises(ToolmeshError):
        await client.do("call", "pay")
    assert len(mesh.of("Invoke")) == 1
    mesh.answer("Invoke", error, DONE)
    await client.do("call", "pay", idempotency_key="order-17")
    assert [call.request.idempotency_key for call in mesh.of("Invoke")] == ["", "order-17", "order-17"]


async def test_a_fault_is_not_tried_without_end(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("Invoke", MeshError(Reason.TOOL_CRASHED))
    with pytest.raises(ToolmeshError) as caught:
        await drive(serve()).do("call", "pay", idempotency_key="order-17", timeout=3600)
    assert caught.value.attempts == 4


async def test_one_attempt_means_no_retry(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("Invoke", BUSY, DONE)
    with pytest.raises(UpstreamFailureError):
        await drive(serve(), retry=RetryPolicy(attempts=1)).do("call", "echo")
    assert len(mesh.of("Invoke")) == 1


async def test_the_stated_delay_is_waited(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("Invoke", MeshError(Reason.RATE_LIMITED, retry_after=7.5), DONE)
    client = drive(serve())
    await client.do("call", "echo", timeout=60)
    assert 7.5 <= client.pauses[0] <= 7.5 * 1.25


async def test_a_delay_past_the_deadline_is_not_begun(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("Invoke", MeshError(Reason.RATE_LIMITED, retry_after=61), DONE)
    client = drive(serve())
    with pytest.raises(RateLimitedError) as caught:
        await client.do("call", "echo", timeout=60)
    assert (client.pauses, caught.value.retry_after) == ([], 61.0)


async def test_a_call_ends_at_its_timeout(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("Invoke", mesh.hold)
    with pytest.raises(DeadlineExceededError) as caught:
        await drive(serve()).do("call", "echo", idempotency_key="k", timeout=0.2)
    assert caught.value.answered is False


@pytest.mark.parametrize("key", [None, "order-17"])
async def test_a_tool_that_used_up_its_own_time_is_not_tried_again(
    drive: Any, mesh: Any, serve: Callable[..., str], key: str | None
) -> None:
    mesh.answer("Invoke", MeshError(Reason.TOOL_TIMEOUT, metadata={"limit_ms": "20"}), DONE)
    client = drive(serve())
    with pytest.raises(DeadlineExceededError) as caught:
        await client.do("call", "slow", idempotency_key=key)
    assert (len(mesh.of("Invoke")), client.pauses, caught.value.attempts) == (1, [], 1)
    assert caught.value.retryable


class Clock:
    """A clock that a test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("timeout", [1e10, math.inf])
async def test_an_infinite_timeout_waits(drive: Any, mesh: Any, serve: Callable[..., str], timeout: float) -> None:
    """gRPC takes a time beyond its clock for one that is over."""
    mesh.answer("Invoke", DONE)
    assert (await drive(serve()).do("call", "echo", timeout=timeout)).content == {"ok": True}


def test_every_attempt_has_what_is_left_of_the_one_timeout() -> None:
    clock = Clock()
    attempts = Attempts(RetryPolicy(), 10.0, repeatable=True, monotonic=clock)
    assert attempts.start() == 10.0
    clock.now += 4.0
    assert attempts.start() == 6.0
    clock.now += 100.0
    assert attempts.start() == 0.0


def test_no_attempt_begins_when_its_wait_would_reach_the_deadline() -> None:
    clock = Clock()
    attempts = Attempts(RetryPolicy(initial=1.0, jitter=0.0), 1.5, repeatable=True, monotonic=clock)
    attempts.start()
    assert attempts.wait_after(_unavailable()) == 1.0
    clock.now += 0.5
    assert attempts.wait_after(_unavailable()) is None


def test_the_budget_fills_again() -> None:
    clock = Clock()
    budget = RetryBudget(capacity=3, per_second=2.0, monotonic=clock)
    assert [budget.take() for _ in range(4)] == [True, True, True, False]
    clock.now += 0.5
    assert [budget.take() for _ in range(2)] == [True, False]
    clock.now += 1e20
    assert [budget.take() for _ in range(4)] == [True, True, True, False]


def test_waits_grow_up_to_the_longest_and_spread_around_it() -> None:
    policy = RetryPolicy(initial=0.1, multiplier=2, longest=0.5, jitter=0.0)
    assert [policy.backoff(attempt) for attempt in (1, 2, 3, 4, 9, 5000)] == [0.1, 0.2, 0.4, 0.5, 0.5, 0.5]
    spread = RetryPolicy(initial=1.0, jitter=0.25)
    assert all(0.75 <= spread.backoff(1) <= 1.25 for _ in range(200))


def _unavailable() -> ToolmeshError:
    return error_for_reason(Reason.SERVICE_UNAVAILABLE, answered=False)
