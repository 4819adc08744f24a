"""A stream of an invocation misses nothing and repeats nothing, by both clients alike."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.executor.v1 import invocation_pb2 as ipb
from toolmesh.executor.v1 import invocation_service_pb2 as pb
from toolmesh_sdk import AuthorizationDeniedError, PreconditionFailedError, Reason, RetryPolicy
from toolmesh_sdk._wire.watch import ACKNOWLEDGE_EVENTS, StreamSession

from libs.common.errors import MeshError
from sdk.tests.executor_samples import envelope

NAME = "invocations/00000000-0000-0000-0000-000000000001"
OPENED = pb.StreamInvocationResponse(invocation=ipb.Invocation(name=NAME))
ALIVE = pb.StreamInvocationResponse(heartbeat=Timestamp(seconds=1))
LOST = grpc.StatusCode.UNAVAILABLE


def a_step(sequence: int, **event: Any) -> pb.StreamInvocationResponse:
    content = event or {"progress": ipb.Progress(current_step=sequence)}
    return pb.StreamInvocationResponse(event=ipb.InvocationEvent(sequence=sequence, **content))


def an_end(sequence: int) -> pb.StreamInvocationResponse:
    return a_step(sequence, ended=ipb.Invocation(state=ipb.INVOCATION_STATE_SUCCEEDED, result=envelope({"n": 1})))


async def read(driven: Any, stream: Any) -> list[int]:
    if driven.kind == "sync":
        return [event.sequence for event in await asyncio.to_thread(lambda: list(stream))]
    return [event.sequence async for event in stream]


async def awaited(value: Any) -> Any:
    return await value if hasattr(value, "__await__") else value


async def test_a_lost_stream_is_attached_again_behind_the_last_event(
    drive: Any, mesh: Any, serve: Callable[..., str]
) -> None:
    mesh.answer(
        "StreamInvocation", LOST, [OPENED, a_step(1), LOST], LOST, [OPENED, ALIVE, a_step(2), a_step(3)], [an_end(4)]
    )
    driven = drive(serve())
    stream = driven.client.stream("echo", {"text": "a"}, cancel_on_disconnect=True)
    assert await read(driven, stream) == [1, 2, 3, 4]
    assert (await awaited(stream.result())).content == {"n": 1}
    first, again, *attached = [call.request for call in mesh.of("StreamInvocation")]
    # A start whose answer was lost is sent again with the same key.
    assert first == again
    assert first.start.request.idempotency_key
    assert first.start.on_disconnect == pb.ON_DISCONNECT_CANCEL
    assert [(each.attach.name, each.attach.after_sequence) for each in attached] == [(NAME, 1), (NAME, 1), (NAME, 3)]


async def test_a_refused_start_is_not_repeated(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    mesh.answer("StreamInvocation", MeshError(Reason.SCOPE_MISSING))
    driven = drive(serve())
    with pytest.raises(AuthorizationDeniedError):
        await read(driven, driven.client.stream("echo"))
    assert len(mesh.seen) == 1


async def test_a_question_is_answered_between_events(drive: Any, mesh: Any, serve: Callable[..., str]) -> None:
    question = ipb.InputRequest(input_id="q", message="How many?")
    mesh.answer("StreamInvocation", [OPENED, a_step(1, input_request=question), an_end(2)])
    mesh.answer("ResumeInvocation", pb.ResumeInvocationResponse())
    mesh.answer("CancelInvocation", pb.CancelInvocationResponse())
    driven = drive(serve())
    stream = driven.client.attach(NAME)
    with pytest.raises(PreconditionFailedError):
        await awaited(stream.answer({"n": 3}))
    await read(driven, stream)
    await awaited(stream.answer({"n": 3}))
    [asked] = mesh.of("ResumeInvocation")
    assert (asked.request.name, asked.request.input.input_id, asked.request.input.content) == (NAME, "q", b'{"n":3}')
    await awaited(stream.cancel())
    assert mesh.of("CancelInvocation")[0].request.name == NAME


def test_events_are_acknowledged_from_time_to_time() -> None:
    session = StreamSession(None, NAME, 10, RetryPolicy(), None)
    sent = []
    for sequence in range(11, 11 + 2 * ACKNOWLEDGE_EVENTS):
        session.advance(a_step(sequence))
        if (due := session.due_acknowledgement()) is not None:
            sent.append(due.acknowledge.sequence)
    assert sent == [10 + ACKNOWLEDGE_EVENTS, 10 + 2 * ACKNOWLEDGE_EVENTS]
