"""Invocations that run without their caller: handles to wait for them, to follow and to cancel them."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple, TypedDict

import grpc
from google.protobuf.duration_pb2 import Duration
from toolmesh.common.v1.error_table import Reason
from toolmesh.executor.v1 import invocation_pb2 as ipb
from toolmesh.executor.v1 import invocation_service_pb2 as pb
from toolmesh.executor.v1.invocation_service_pb2_grpc import InvocationServiceStub

from toolmesh_sdk._wire import requests
from toolmesh_sdk._wire.status import error_from_envelope, error_from_rpc
from toolmesh_sdk._wire.times import to_timestamp
from toolmesh_sdk._wire.trace import trace_id_of
from toolmesh_sdk._wire.transport import AsyncTransport, Transport, canceled_when_closed
from toolmesh_sdk._wire.watch import InvocationWatch
from toolmesh_sdk.errors import error_for_reason
from toolmesh_sdk.keys import resolve_idempotency_key
from toolmesh_sdk.result import Result, parse_result

# One long poll; a wait is made of as many as it takes.
POLL_SECONDS = 30.0
# The answer to a long poll takes a moment longer than the poll.
_ANSWER_SECONDS = 10.0


class CallOptions(TypedDict, total=False):
    """What a call may say beside its tool and its arguments, as in `Client.call`."""

    version: str
    idempotency_key: str | None
    step: str | None
    session_id: str
    task_id: str
    native_call_id: str
    tool_digest: str
    priority: int
    preview_token: str
    ticket: str


class Callback(NamedTuple):
    """Where the end of an invocation is reported: a URL, and the secret (`whsec_...`) that signs the report."""

    url: str
    secret: str

    def __repr__(self) -> str:
        return f"Callback(url={self.url!r})"


class JobFilters(TypedDict, total=False):
    """Filters of invocations; omitted filters match everything. Times are aware."""

    states: list[str]
    tool: str
    from_time: datetime
    to_time: datetime


def start_request(
    tool: str,
    arguments: Mapping[str, Any] | None,
    options: CallOptions,
    max_duration: float | None,
    secret: str | bytes,
    *,
    cancel_on_disconnect: bool = False,
    callback: Callback | None = None,
    parent: str = "",
) -> pb.StartInvocationRequest:
    """Build the request that starts an invocation."""
    session = options.get("session_id", "")
    key = resolve_idempotency_key(
        secret, session, tool, arguments, step=options.get("step"), explicit=options.get("idempotency_key")
    )
    call = requests.invoke(
        *(tool, arguments, options.get("version", ""), key, session, options.get("task_id", "")),
        *(options.get("native_call_id", ""), options.get("tool_digest", "")),
        priority=options.get("priority", 0),
        preview_token=options.get("preview_token", ""),
        ticket=options.get("ticket", ""),
    )
    longest = None if max_duration is None else _duration(max_duration)
    on_disconnect = pb.ON_DISCONNECT_CANCEL if cancel_on_disconnect else pb.ON_DISCONNECT_UNSPECIFIED
    report_to = None if callback is None else pb.Callback(url=callback.url, secret=callback.secret)
    return pb.StartInvocationRequest(
        request=call, max_duration=longest, on_disconnect=on_disconnect, callback=report_to, parent=parent
    )


def answer_request(name: str, input_id: str, value: Any) -> pb.ResumeInvocationRequest:
    """Build the request that answers a question with a JSON value."""
    content = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    return pb.ResumeInvocationRequest(name=name, input=pb.InvocationInput(input_id=input_id, content=content))


def resume_request(name: str, checkpoint: str) -> pb.ResumeInvocationRequest:
    """Build the request that resumes an ended invocation from a checkpoint, given by its name or its number."""
    full = checkpoint if not checkpoint or "/" in checkpoint else f"{name}/checkpoints/{checkpoint}"
    return pb.ResumeInvocationRequest(name=name, checkpoint=pb.ResumePoint(name=full))


def list_request(filters: JobFilters, page_size: int) -> pb.ListInvocationsRequest:
    """Build the request for the first page of invocations. Raises ValueError for an unknown state."""
    return pb.ListInvocationsRequest(
        states=[ipb.InvocationState.Value(f"INVOCATION_STATE_{state.upper()}") for state in filters.get("states", [])],
        tool=requests.qualified_name(filters.get("tool", "")),
        start_time=to_timestamp(filters.get("from_time")),
        end_time=to_timestamp(filters.get("to_time")),
        page_size=page_size,
    )


def state_of(invocation: ipb.Invocation) -> str:
    """Return the state in lower case, such as `running`."""
    return str(ipb.InvocationState.Name(invocation.state)).removeprefix("INVOCATION_STATE_").lower()


def event_state(event: ipb.InvocationEvent) -> str:
    """Return the state that an event entered, and why where the state alone does not say."""
    if event.HasField("ended"):
        return state_of(event.ended)
    label = str(ipb.InvocationState.Name(event.transition.state)).removeprefix("INVOCATION_STATE_").lower()
    return f"{label} ({event.transition.reason})" if event.transition.reason else label


def outcome_of(invocation: ipb.Invocation) -> Result:
    """Return the result of an invocation that ended, or raise its error."""
    if invocation.HasField("error"):
        raise error_from_envelope(invocation.error)
    return parse_result(invocation.result)


class _Wait:
    """Splits a wait into long polls. Raises DeadlineExceededError when it is over; the invocation goes on."""

    def __init__(self, name: str, timeout: float | None, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._name, self._monotonic = name, monotonic
        self._until = None if timeout is None else monotonic() + timeout

    def next_poll(self) -> tuple[pb.WaitInvocationRequest, float]:
        """Return the request of the next poll and its timeout."""
        left = POLL_SECONDS if self._until is None else self._until - self._monotonic()
        if left <= 0:
            message = f"{self._name} has not ended in time; it goes on."
            raise error_for_reason(Reason.DEADLINE_EXCEEDED, message=message, answered=False)
        seconds = min(left, POLL_SECONDS)
        request = pb.WaitInvocationRequest(name=self._name, timeout=_duration(seconds))
        return request, seconds + _ANSWER_SECONDS


class Job:
    """An invocation by name. Made by `Client.start` and `Client.job`."""

    def __init__(
        self, transport: Transport, name: str, estimated_seconds: float | None = None, ticket: str = ""
    ) -> None:
        self.name, self.estimated_seconds, self.ticket = name, estimated_seconds, ticket
        """`start` sets the estimate where earlier runs of the tool succeeded, and the ticket that it waits for."""
        self._transport, self._stub = transport, InvocationServiceStub(transport.channel)

    def get(self, *, timeout: float | None = None) -> ipb.Invocation:
        """Return the invocation as it is now."""
        request = pb.GetInvocationRequest(name=self.name)
        return self._transport.unary(self._stub.GetInvocation, request, timeout, repeatable=True).invocation

    def wait(self, *, timeout: float | None = None) -> ipb.Invocation:
        """Return the invocation once it ended. Raises DeadlineExceededError after the timeout; it goes on then."""
        wait = _Wait(self.name, timeout)
        while True:
            request, seconds = wait.next_poll()
            found = self._transport.unary(self._stub.WaitInvocation, request, seconds, repeatable=True).invocation
            if found.HasField("end_time"):
                return found

    def result(self, *, timeout: float | None = None) -> Result:
        """Return the result once there is one, or raise the error that the invocation ended with."""
        return outcome_of(self.wait(timeout=timeout))

    def watch(self, *, after: int = 0, timeout: float | None = None) -> Iterator[ipb.InvocationEvent]:
        """Iterate over the events behind a sequence until the invocation ends, or the timeout is over.

        No event is missed or repeated when a connection is lost.
        """
        options = self._transport.options
        watch = InvocationWatch(pb.WatchInvocationRequest(name=self.name, after_sequence=after), options.retry, timeout)
        while not watch.ended and (seconds := watch.next_stream()) is not None:
            trace, error = options.traceparent(), None
            stream = self._stub.WatchInvocation(watch.request, timeout=seconds, metadata=options.metadata(trace))
            try:
                for message in stream:
                    if (event := watch.advance(message)) is not None:
                        yield event
            except grpc.RpcError as failure:
                error = error_from_rpc(failure, trace_id_of(trace))
            finally:
                stream.cancel()
            if not watch.ended:
                self._transport.pause(watch.wait_after(error))

    def answer(self, value: Any, input_id: str, *, timeout: float | None = None) -> ipb.Invocation:
        """Answer the question of the tool with a JSON value. Raises InvalidInputError where it breaks the schema.

        The question stays open then.
        """
        request = answer_request(self.name, input_id, value)
        return self._transport.unary(self._stub.ResumeInvocation, request, timeout, repeatable=False).invocation

    def checkpoints(self, *, timeout: float | None = None) -> list[ipb.Checkpoint]:
        """Return the checkpoints of the invocation, newest first."""
        request = pb.ListCheckpointsRequest(parent=self.name)
        return list(self._transport.unary(self._stub.ListCheckpoints, request, timeout, repeatable=True).checkpoints)

    def resume(self, checkpoint: str = "", *, timeout: float | None = None) -> Job:
        """Start a new invocation from a checkpoint of this one, which failed, timed out or was cancelled.

        `checkpoint` is a name or a number; the newest usable one if it is empty. Repeated, it returns the same one.
        """
        request = resume_request(self.name, checkpoint)
        answer = self._transport.unary(self._stub.ResumeInvocation, request, timeout, repeatable=True)
        return Job(self._transport, answer.invocation.name)

    def cancel(self, *, timeout: float | None = None) -> ipb.Invocation:
        """Cancel the invocation and return it. It may still run for a moment."""
        request = pb.CancelInvocationRequest(name=self.name)
        return self._transport.unary(self._stub.CancelInvocation, request, timeout, repeatable=True).invocation


class AsyncJob:
    """An invocation by name, for asyncio. Made by `AsyncClient.start` and `AsyncClient.job`."""

    def __init__(
        self, transport: AsyncTransport, name: str, estimated_seconds: float | None = None, ticket: str = ""
    ) -> None:
        self.name, self.estimated_seconds, self.ticket = name, estimated_seconds, ticket
        """`start` sets the estimate where earlier runs of the tool succeeded, and the ticket that it waits for."""
        self._transport = transport
        self._stub: Any = InvocationServiceStub(transport.channel)

    async def get(self, *, timeout: float | None = None) -> ipb.Invocation:
        """Return the invocation as it is now."""
        request = pb.GetInvocationRequest(name=self.name)
        answer = await self._transport.unary(self._stub.GetInvocation, request, timeout, repeatable=True)
        found: ipb.Invocation = answer.invocation
        return found

    async def wait(self, *, timeout: float | None = None) -> ipb.Invocation:
        """Return the invocation once it ended. Raises DeadlineExceededError after the timeout; it goes on then."""
        wait = _Wait(self.name, timeout)
        while True:
            request, seconds = wait.next_poll()
            answer = await self._transport.unary(self._stub.WaitInvocation, request, seconds, repeatable=True)
            found: ipb.Invocation = answer.invocation
            if found.HasField("end_time"):
                return found

    async def result(self, *, timeout: float | None = None) -> Result:
        """Return the result once there is one, or raise the error that the invocation ended with."""
        return outcome_of(await self.wait(timeout=timeout))

    async def watch(self, *, after: int = 0, timeout: float | None = None) -> AsyncIterator[ipb.InvocationEvent]:
        """Iterate over the events behind a sequence until the invocation ends, or the timeout is over.

        No event is missed or repeated when a connection is lost.
        """
        options = self._transport.options
        watch = InvocationWatch(pb.WatchInvocationRequest(name=self.name, after_sequence=after), options.retry, timeout)
        while not watch.ended and (seconds := watch.next_stream()) is not None:
            trace, error = options.traceparent(), None
            stream = self._stub.WatchInvocation(watch.request, timeout=seconds, metadata=options.metadata(trace))
            try:
                with canceled_when_closed(trace):
                    async for message in stream:
                        if (event := watch.advance(message)) is not None:
                            yield event
            except grpc.RpcError as failure:
                error = error_from_rpc(failure, trace_id_of(trace))
            finally:
                stream.cancel()
            if not watch.ended:
                await self._transport.pause(watch.wait_after(error))

    async def answer(self, value: Any, input_id: str, *, timeout: float | None = None) -> ipb.Invocation:
        """Answer the question of the tool with a JSON value. Raises InvalidInputError where it breaks the schema.

        The question stays open then.
        """
        request = answer_request(self.name, input_id, value)
        response = await self._transport.unary(self._stub.ResumeInvocation, request, timeout, repeatable=False)
        found: ipb.Invocation = response.invocation
        return found

    async def checkpoints(self, *, timeout: float | None = None) -> list[ipb.Checkpoint]:
        """Return the checkpoints of the invocation, newest first."""
        request = pb.ListCheckpointsRequest(parent=self.name)
        answer = await self._transport.unary(self._stub.ListCheckpoints, request, timeout, repeatable=True)
        return list(answer.checkpoints)

    async def resume(self, checkpoint: str = "", *, timeout: float | None = None) -> AsyncJob:
        """Start a new invocation from a checkpoint of this one, which failed, timed out or was cancelled.

        `checkpoint` is a name or a number; the newest usable one if it is empty. Repeated, it returns the same one.
        """
        request = resume_request(self.name, checkpoint)
        answer = await self._transport.unary(self._stub.ResumeInvocation, request, timeout, repeatable=True)
        return AsyncJob(self._transport, answer.invocation.name)

    async def cancel(self, *, timeout: float | None = None) -> ipb.Invocation:
        """Cancel the invocation and return it. It may still run for a moment."""
        request = pb.CancelInvocationRequest(name=self.name)
        answer = await self._transport.unary(self._stub.CancelInvocation, request, timeout, repeatable=True)
        found: ipb.Invocation = answer.invocation
        return found


def _awaited_ticket(invocation: ipb.Invocation) -> str:
    return invocation.ticket if invocation.state == ipb.INVOCATION_STATE_AWAITING_APPROVAL else ""


def start(transport: Transport, request: pb.StartInvocationRequest, timeout: float | None) -> Job:
    """Start an invocation. One without a key is not sent again when its answer is lost: it may have started."""
    stub = InvocationServiceStub(transport.channel)
    keyed = bool(request.request.idempotency_key)
    answer = transport.unary(stub.StartInvocation, request, timeout, repeatable=keyed)
    return Job(transport, answer.invocation.name, _estimate_of(answer), _awaited_ticket(answer.invocation))


async def start_async(transport: AsyncTransport, request: pb.StartInvocationRequest, timeout: float | None) -> AsyncJob:
    """Start an invocation, for asyncio."""
    stub: Any = InvocationServiceStub(transport.channel)
    keyed = bool(request.request.idempotency_key)
    answer = await transport.unary(stub.StartInvocation, request, timeout, repeatable=keyed)
    return AsyncJob(transport, answer.invocation.name, _estimate_of(answer), _awaited_ticket(answer.invocation))


def _estimate_of(answer: pb.StartInvocationResponse) -> float | None:
    estimated = answer.estimated_duration
    return estimated.ToMicroseconds() / 1e6 if answer.HasField("estimated_duration") else None


def pages(transport: Transport, request: pb.ListInvocationsRequest, timeout: float | None) -> Iterator[ipb.Invocation]:
    """Iterate over invocations, newest first."""
    stub = InvocationServiceStub(transport.channel)
    while True:
        page = transport.unary(stub.ListInvocations, request, timeout, repeatable=True)
        yield from page.invocations
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token


async def pages_async(
    transport: AsyncTransport, request: pb.ListInvocationsRequest, timeout: float | None
) -> AsyncIterator[ipb.Invocation]:
    """Iterate over invocations, newest first, for asyncio."""
    stub: Any = InvocationServiceStub(transport.channel)
    while True:
        page = await transport.unary(stub.ListInvocations, request, timeout, repeatable=True)
        for invocation in page.invocations:
            yield invocation
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token


def _duration(seconds: float) -> Duration:
    return Duration(seconds=int(seconds), nanos=int(seconds % 1 * 1e9))
