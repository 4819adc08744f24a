"""Invocations by name on two executors that share a database, put together like real ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from toolmesh.executor.v1 import executor_service_pb2 as call_pb
from toolmesh.executor.v1 import invocation_pb2 as ipb
from toolmesh.executor.v1 import invocation_service_pb2 as pb
from toolmesh.executor.v1 import invocation_service_pb2_grpc as rpc

from libs.common.errors import MeshError, Reason
from libs.common.ids import new_id
from libs.common.json.jsonio import dump
from libs.common.rpc.client import channel_to
from libs.common.rpc.status import from_envelope, from_rpc_error
from libs.common.runtime.clock import SystemClock
from libs.common.runtime.settings import Address
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from services.executor.config import Settings
from services.executor.tests.peers import AuditPeer, credentials
from services.executor.wiring import compose
from tests.harness import booking_executor
from tests.harness.booking_executor import BookingRunner, bookings, entries

SUCCEEDED, CANCELED = ipb.INVOCATION_STATE_SUCCEEDED, ipb.INVOCATION_STATE_CANCELED
RUNNING = ipb.INVOCATION_STATE_RUNNING


class Replicas:
    """Two executors, as a caller sees them."""

    def __init__(self, stubs: list[Any], signer: Any, folder: Path) -> None:
        self.stubs, self.folder = stubs, folder
        self._signer = signer
        self._metadata = (("authorization", f"Bearer {signer.mint()}"),)

    async def ask(self, where: int, method: str, request: Any, **claims: Any) -> Any:
        """Call one of them, as the usual caller or one with other claims."""
        metadata = (("authorization", f"Bearer {self._signer.mint(**claims)}"),) if claims else self._metadata
        try:
            return await getattr(self.stubs[where], method)(request, metadata=metadata, timeout=120)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error

    async def start(self, where: int, takes_ms: int = 0, *, key: str = "", tool: str = "book_once") -> Any:
        """Start a booking."""
        arguments = b'{"takes_ms":%d}' % takes_ms
        call = call_pb.InvokeRequest(tool=tool, arguments=arguments, idempotency_key=key or new_id())
        return (await self.ask(where, "StartInvocation", pb.StartInvocationRequest(request=call))).invocation

    async def ended(self, where: int, name: str) -> Any:
        """Return an invocation once it has ended."""
        while True:
            found = (await self.ask(where, "WaitInvocation", pb.WaitInvocationRequest(name=name))).invocation
            if found.HasField("end_time"):
                return found

    async def report(self, where: int, *, tool: str = "report_steps", **arguments: Any) -> Any:
        """Start a tool that reports."""
        call = call_pb.InvokeRequest(tool=tool, arguments=dump(arguments))
        return (await self.ask(where, "StartInvocation", pb.StartInvocationRequest(request=call))).invocation

    def stream(self, where: int) -> Any:
        """Open a stream."""
        return self.stubs[where].StreamInvocation(metadata=self._metadata)

    def watch(self, where: int, name: str, after: int = 0) -> Any:
        """Open a watch."""
        request = pb.WatchInvocationRequest(name=name, after_sequence=after)
        return self.stubs[where].WatchInvocation(request, metadata=self._metadata)


@pytest.fixture
async def replicas(
    pki: Any,
    signer: Any,
    executor_settings: Callable[..., Settings],
    quiet: Log,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Replicas]:
    monkeypatch.setattr(booking_executor, "_FAULTS", tmp_path)
    stubs = []
    async with AsyncExitStack() as stack:
        for number in range(2):
            settings = executor_settings(INSTANCE_ID=f"executor-{number}")
            application = compose(
                settings, quiet, Tracing(), clock=SystemClock(), tools=bookings(), builtin_runner=BookingRunner
            )
            await application.start()
            stack.push_async_callback(application.stop)
            address = Address("127.0.0.1", application.server.port)
            channel = await stack.enter_async_context(channel_to("executor", address, credentials(pki, "orchestrator")))
            stubs.append(rpc.InvocationServiceStub(channel))
        made = Replicas(stubs, signer, tmp_path)
        async with asyncio.timeout(60):
            for where in range(2):
                while True:
                    try:
                        await made.start(where)
                        break
                    except MeshError as error:
                        # The tools arrive in the background.
                        if error.reason not in (Reason.TOOL_NOT_FOUND, Reason.SERVICE_UNAVAILABLE):
                            raise
        yield made


async def refusal(call: Any) -> Reason:
    with pytest.raises(MeshError) as refused:
        await call
    return refused.value.reason


async def test_an_invocation_is_started_awaited_watched_and_listed_at_any_replica(
    replicas: Replicas, audit: AuditPeer
) -> None:
    started = await replicas.start(0, 50, key="k")
    ended = await replicas.ended(1, started.name)
    assert ended.state == SUCCEEDED
    assert ended.result.invocation_id == started.invocation_id
    assert [key for key, _, _ in entries(replicas.folder)].count("k") == 1
    events = [each.event async for each in replicas.watch(1, started.name)]
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert [event.transition.state for event in events[-2:-1]] == [RUNNING]
    assert events[-1].ended.result == ended.result
    rest = [each.event async for each in replicas.watch(0, started.name, after=events[1].sequence)]
    assert [event.sequence for event in rest] == [event.sequence for event in events[2:]]
    # The same key is the same invocation, wherever it is asked for.
    again = await replicas.start(1, 50, key="k")
    assert again.name == started.name
    assert await refusal(replicas.start(1, 51, key="k")) is Reason.IDEMPOTENCY_CONFLICT
    listed = await replicas.ask(1, "ListInvocations", pb.ListInvocationsRequest(states=[SUCCEEDED]))
    assert started.name in [each.name for each in listed.invocations]


async def test_a_watch_that_waits_sees_the_end_and_a_cancellation_at_another_replica_is_carried_out(
    replicas: Replicas,
) -> None:
    started = await replicas.start(0, 60_000)
    watch = replicas.watch(1, started.name)
    async for each in watch:
        if each.event.transition.state == RUNNING:
            break
    await replicas.ask(1, "CancelInvocation", pb.CancelInvocationRequest(name=started.name))
    last = [each.event async for each in watch][-1]
    assert last.ended.state == CANCELED
    assert from_envelope(last.ended.error).reason is Reason.INVOCATION_CANCELED
    # Canceling it again changes nothing.
    answer = await replicas.ask(0, "CancelInvocation", pb.CancelInvocationRequest(name=started.name))
    assert answer.invocation.state == CANCELED


async def test_others_find_nothing_of_an_invocation(replicas: Replicas) -> None:
    started = await replicas.start(0)
    for method, request in (
        ("GetInvocation", pb.GetInvocationRequest(name=started.name)),
        ("WaitInvocation", pb.WaitInvocationRequest(name=started.name)),
        ("CancelInvocation", pb.CancelInvocationRequest(name=started.name)),
    ):
        asked = replicas.ask(0, method, request, sub="did:web:toolmesh.local:users:mallory")
        assert await refusal(asked) is Reason.INVOCATION_NOT_FOUND
    listed = await replicas.ask(
        0, "ListInvocations", pb.ListInvocationsRequest(), sub="did:web:toolmesh.local:users:mallory"
    )
    assert not listed.invocations


async def test_what_invoke_refuses_is_not_started(replicas: Replicas) -> None:
    call = call_pb.InvokeRequest(tool="book_once", arguments=b'{"takes_ms":-1}', idempotency_key="k")
    assert (
        await refusal(replicas.ask(0, "StartInvocation", pb.StartInvocationRequest(request=call)))
        is Reason.ARGUMENTS_INVALID
    )
    call = call_pb.InvokeRequest(tool="core.unheard_of")
    assert (
        await refusal(replicas.ask(0, "StartInvocation", pb.StartInvocationRequest(request=call)))
        is Reason.TOOL_NOT_FOUND
    )


def kinds(events: list[Any]) -> list[str]:
    return [event.WhichOneof("event") for event in events]


async def test_what_a_tool_reports_is_watched_at_any_replica_in_order_and_redacted(replicas: Replicas) -> None:
    started = await replicas.report(0, steps=50, line="password=hunter2hunter2")
    events = [each.event async for each in replicas.watch(1, started.name) if each.HasField("event")]
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    reports = [event for event in events if event.WhichOneof("event") not in ("transition", "ended")]
    assert kinds(reports)[:2] == ["log_message", "partial_result"]
    steps = [event.progress.current_step for event in reports[2:]]
    # Merged, in order, and the last one is never left out.
    assert steps == sorted(set(steps))
    assert steps[-1] == 50
    assert len(steps) < 10
    assert "hunter2" not in reports[0].log_message.text
    assert b"hunter2" not in reports[1].partial_result.content
    assert events[-1].ended.state == SUCCEEDED


async def next_of(stream: Any, kind: str) -> Any:
    """Return the next event of a kind."""
    while True:
        message = await stream.read()
        assert message is not grpc.aio.EOF
        if message.HasField("event") and message.event.WhichOneof("event") == kind:
            return getattr(message.event, kind)


def start_message(tool: str, *, on_disconnect: Any = pb.ON_DISCONNECT_UNSPECIFIED, **arguments: Any) -> Any:
    call = call_pb.InvokeRequest(tool=tool, arguments=dump(arguments))
    return pb.StreamInvocationRequest(start=pb.StartInvocationRequest(request=call, on_disconnect=on_disconnect))


async def test_a_stream_starts_answers_and_follows_an_invocation(replicas: Replicas) -> None:
    stream = replicas.stream(0)
    await stream.write(start_message("report_steps", steps=1, question="How many?"))
    name = (await stream.read()).invocation.name
    asked = await next_of(stream, "input_request")
    assert (asked.message, b"integer" in asked.schema) == ("How many?", True)
    for content in (b'{"n": "many"}', b"{", b'{"n": 1, "n": 2}'):
        await stream.write(
            pb.StreamInvocationRequest(input=pb.InvocationInput(input_id=asked.input_id, content=content))
        )
        refused = from_envelope((await stream.read()).refusal).reason
        assert refused in (Reason.ARGUMENTS_INVALID, Reason.INVALID_JSON)
    await stream.write(
        pb.StreamInvocationRequest(input=pb.InvocationInput(input_id=asked.input_id, content=b'{"n": 3}'))
    )
    ended = await next_of(stream, "ended")
    assert ended.state == SUCCEEDED
    assert ended.result.structured_content == b'{"steps":1,"answer":{"n":3}}'
    assert await stream.read() is grpc.aio.EOF
    # A second stream, attached behind an event, sees the rest of it.
    stream = replicas.stream(1)
    await stream.write(pb.StreamInvocationRequest(attach=pb.AttachInvocation(name=name, after_sequence=3)))
    rest = [message.event async for message in stream if message.HasField("event")]
    assert [event.sequence for event in rest] == list(range(4, rest[-1].sequence + 1))
    states = [event.transition.state for event in rest if event.HasField("transition")]
    assert states[-2:] == [ipb.INVOCATION_STATE_NEEDS_INPUT, RUNNING]


async def test_a_question_is_answered_by_name_at_another_replica_and_only_once(replicas: Replicas) -> None:
    started = await replicas.report(0, steps=0, question="How many?")
    stream = replicas.stream(1)
    await stream.write(pb.StreamInvocationRequest(attach=pb.AttachInvocation(name=started.name)))
    asked = await next_of(stream, "input_request")

    def answer(content: bytes, input_id: str = asked.input_id, **claims: Any) -> Any:
        given = pb.InvocationInput(input_id=input_id, content=content)
        return replicas.ask(1, "ResumeInvocation", pb.ResumeInvocationRequest(name=started.name, input=given), **claims)

    mallory = {"sub": "did:web:toolmesh.local:users:mallory"}
    assert await refusal(answer(b'{"n": 3}', **mallory)) is Reason.INVOCATION_NOT_FOUND
    assert await refusal(answer(b'{"n": "x"}')) is Reason.ARGUMENTS_INVALID
    assert await refusal(answer(b'{"n": 3}', input_id="another")) is Reason.FAILED_PRECONDITION
    await answer(b'{"n": 3}')
    assert (await next_of(stream, "ended")).state == SUCCEEDED
    assert await refusal(answer(b'{"n": 4}')) is Reason.FAILED_PRECONDITION


async def test_a_stream_that_is_not_opened_well_is_refused(replicas: Replicas) -> None:
    cancel = pb.StreamInvocationRequest(cancel=pb.CancelStreamedInvocation())
    unknown = pb.StreamInvocationRequest(attach=pb.AttachInvocation(name=f"invocations/{new_id()}"))
    for first, reason in ((cancel, Reason.INVALID_REQUEST), (unknown, Reason.INVOCATION_NOT_FOUND)):
        stream = replicas.stream(0)
        await stream.write(first)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stream.read()
        assert from_rpc_error(refused.value).reason is reason
    call = call_pb.InvokeRequest(tool="report_steps", arguments=b'{"steps":0}')
    alone = pb.StartInvocationRequest(request=call, on_disconnect=pb.ON_DISCONNECT_CANCEL)
    assert await refusal(replicas.ask(0, "StartInvocation", alone)) is Reason.INVALID_REQUEST


@pytest.mark.parametrize(("tool", "how"), [("report_steps", ""), ("report_deaf", "not_supported")])
async def test_a_cancellation_reaches_a_tool_that_supports_it_and_stops_others(
    replicas: Replicas, tool: str, how: str
) -> None:
    stream = replicas.stream(0)
    await stream.write(start_message(tool, steps=1, pause_ms=600_000))
    await next_of(stream, "progress")
    await stream.write(pb.StreamInvocationRequest(cancel=pb.CancelStreamedInvocation()))
    ended = await next_of(stream, "ended")
    assert ended.state == CANCELED
    assert from_envelope(ended.error).metadata.get("cancellation", "") == how
