"""Invocations by name, by both clients alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.executor.v1 import executor_service_pb2 as call_pb
from toolmesh.executor.v1 import invocation_pb2 as ipb
from toolmesh.executor.v1 import invocation_service_pb2 as pb
from toolmesh_sdk import InvalidInputError, Reason
from toolmesh_sdk.jobs import CallOptions, JobFilters, event_state, list_request, outcome_of, start_request, state_of

from libs.common.errors import MeshError
from libs.common.rpc.status import envelope as error_envelope
from sdk.tests.executor_samples import envelope

NAME = "invocations/00000000-0000-0000-0000-000000000001"
STARTED = pb.StartInvocationResponse(invocation=ipb.Invocation(name=NAME, state=ipb.INVOCATION_STATE_QUEUED))


def test_a_start_asks_for_everything_it_was_given() -> None:
    options: CallOptions = {
        "version": "^1",
        "idempotency_key": "k",
        "session_id": "s",
        "task_id": "t",
        "native_call_id": "n",
        "tool_digest": "sha256:" + "0" * 64,
        "priority": 7,
        "preview_token": "p",
    }
    request = start_request("echo", {"text": "ü"}, options, 90.5, b"")
    fields: dict[str, Any] = dict(options)
    assert request.request == call_pb.InvokeRequest(tool="echo", arguments='{"text":"ü"}'.encode(), **fields)
    assert request.max_duration.ToMilliseconds() == 90_500
    assert not start_request("echo", None, {}, None, b"").HasField("max_duration")


def test_a_list_is_filtered_by_state_and_tool() -> None:
    request = list_request(JobFilters(states=["running"], tool="echo"), 10)
    assert (list(request.states), request.tool) == ([ipb.INVOCATION_STATE_RUNNING], "core.echo")
    with pytest.raises(ValueError, match="NONSENSE"):
        list_request(JobFilters(states=["nonsense"]), 10)


def test_an_outcome_is_a_result_or_an_error() -> None:
    done = ipb.Invocation(state=ipb.INVOCATION_STATE_SUCCEEDED, result=envelope({"n": 1}))
    assert (outcome_of(done).content, state_of(done)) == ({"n": 1}, "succeeded")
    failed = ipb.Invocation(error=error_envelope(MeshError(Reason.ARGUMENTS_INVALID)))
    with pytest.raises(InvalidInputError):
        outcome_of(failed)


def test_an_event_names_its_state_and_why() -> None:
    moved = ipb.StateTransition(state=ipb.INVOCATION_STATE_YIELDED, reason="taken over")
    assert event_state(ipb.InvocationEvent(transition=moved)) == "yielded (taken over)"
    ended = ipb.Invocation(state=ipb.INVOCATION_STATE_SUCCEEDED)
    assert event_state(ipb.InvocationEvent(ended=ended)) == "succeeded"


@pytest.mark.parametrize(("key", "sent"), [("k", 2), (None, 1)])
async def test_a_lost_start_is_repeated_only_with_a_key(
    drive: Any, mesh: Any, serve: Callable[..., str], key: str | None, sent: int
) -> None:
    mesh.answer("StartInvocation", grpc.StatusCode.UNAVAILABLE, STARTED)
    client = drive(serve())
    if key:
        assert (await client.do("start", "echo", {}, idempotency_key=key)).name == NAME
    else:
        with pytest.raises(Exception):  # noqa: B017
            await client.do("start", "echo", {})
    assert len(mesh.of("StartInvocation")) == sent


async def test_a_result_is_awaited_over_as_many_polls_as_it_takes(
    drive: Any, mesh: Any, serve: Callable[..., str]
) -> None:
    running = ipb.Invocation(name=NAME, state=ipb.INVOCATION_STATE_RUNNING)
    ended = ipb.Invocation(
        name=NAME, state=ipb.INVOCATION_STATE_SUCCEEDED, end_time=Timestamp(seconds=1), result=envelope({"n": 1})
    )
    mesh.answer("StartInvocation", STARTED)
    mesh.answer(
        "WaitInvocation", pb.WaitInvocationResponse(invocation=running), pb.WaitInvocationResponse(invocation=ended)
    )
    job = await drive(serve()).do("start", "echo", {}, idempotency_key="k")
    result = job.result(timeout=60)
    assert (await result if hasattr(result, "__await__") else result).content == {"n": 1}
    assert [asked.request.name for asked in mesh.of("WaitInvocation")] == [NAME, NAME]
