"""Follows an invocation for one request: to its end, to a question, or to the end of the request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc
import grpc.aio
from toolmesh.executor.v1.invocation_pb2 import InputRequest, Invocation, InvocationEvent
from toolmesh.executor.v1.invocation_service_pb2 import (
    AttachInvocation,
    CancelInvocationRequest,
    StartInvocationRequest,
    StreamInvocationRequest,
    StreamInvocationResponse,
)

from libs.common.call_context import Call, enter, serving
from libs.common.errors import MeshError, Reason
from libs.common.runtime.backoff import Backoff
from libs.common.telemetry.log import Log
from services.gateway.mcp.context import McpContext
from services.gateway.mcp.invocations.questions import ask, client_requests
from services.gateway.mcp.invocations.reports import Reports
from services.gateway.transport.asgi_types import DisconnectedError

if TYPE_CHECKING:
    from toolmesh.executor.v1.invocation_service_pb2_grpc import InvocationServiceAsyncStub

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_CANCEL_SECONDS = 10.0


class Asked(NamedTuple):
    """A question that ends a stateless request: the client answers it with its next one."""

    invocation_id: str
    request: InputRequest
    sequence: int


class FollowInvocation:
    """Reads the stream of an invocation, and connects again, behind the last event, when a replica is lost."""

    def __init__(self, invocations: InvocationServiceAsyncStub, log: Log) -> None:
        self._invocations, self._log = invocations, log
        self._cancelling: set[asyncio.Task[None]] = set()

    async def start(self, request: StartInvocationRequest, context: McpContext, reports: Reports) -> Invocation | Asked:
        """Start an invocation and follow it. It does not outlive a request that is cancelled."""
        return await _Following(self, context, reports, owned=True).run(StreamInvocationRequest(start=request))

    async def attach(
        self, name: str, after: int, context: McpContext, reports: Reports, *, owned: bool
    ) -> Invocation | Asked:
        """Follow an invocation behind a sequence. `owned`: it does not outlive a request that is cancelled."""
        following = _Following(self, context, reports, owned=owned, name=name, after=after)
        return await following.run(StreamInvocationRequest(attach=AttachInvocation(name=name, after_sequence=after)))

    def stream(self, first: StreamInvocationRequest) -> grpc.aio.StreamStreamCall:  # type: ignore[type-arg]
        """Open the stream."""
        return self._invocations.StreamInvocation(_only(first))

    def cancel_soon(self, name: str) -> None:
        """Cancel an invocation without waiting for it: its client is gone, and its request has no time left."""
        task = asyncio.create_task(self._cancel(name, serving()))
        self._cancelling.add(task)
        task.add_done_callback(self._cancelling.discard)

    def cancel_unnamed_soon(self, stream: Any, reading: asyncio.Future[Any]) -> None:
        """Cancel an invocation whose name is not known yet: it comes with the first message of its stream."""
        task = asyncio.create_task(self._cancel_unnamed(stream, reading, serving()))
        self._cancelling.add(task)
        task.add_done_callback(self._cancelling.discard)

    async def _cancel_unnamed(self, stream: Any, reading: asyncio.Future[Any], call: Call) -> None:
        try:
            async with asyncio.timeout(_CANCEL_SECONDS):
                message = await reading
        except (grpc.aio.AioRpcError, TimeoutError):
            return
        finally:
            stream.cancel()
        if isinstance(message, StreamInvocationResponse) and message.invocation.name:
            await self._cancel(message.invocation.name, call)

    async def _cancel(self, name: str, call: Call) -> None:
        deadline = time.monotonic() + _CANCEL_SECONDS
        enter(Call(call.method, call.trace, token=call.token, deadline=deadline, request_id=call.request_id))
        try:
            await self._invocations.CancelInvocation(CancelInvocationRequest(name=name))
        except (grpc.aio.AioRpcError, MeshError) as error:
            # It ends all the same: without a stream after 30 seconds, and with its time.
            self._log.warning("an invocation was not cancelled", invocation=name, error=type(error).__name__)


class _Following:
    def __init__(
        self,
        follow: FollowInvocation,
        context: McpContext,
        reports: Reports,
        *,
        owned: bool,
        name: str = "",
        after: int = 0,
    ) -> None:
        self._follow, self._context, self._reports, self._owned = follow, context, reports, owned
        self._name, self._after = name, after

    async def run(self, first: StreamInvocationRequest) -> Invocation | Asked:
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        try:
            while True:
                try:
                    outcome = await self._read(first)
                except grpc.aio.AioRpcError as error:
                    if not self._name or error.code() is not grpc.StatusCode.UNAVAILABLE:
                        raise
                    outcome = None
                if outcome is not None:
                    return outcome
                if not self._name:
                    raise MeshError(Reason.SERVICE_UNAVAILABLE, metadata={"outcome": "unknown"})
                await backoff.wait()
                attach = AttachInvocation(name=self._name, after_sequence=self._after)
                first = StreamInvocationRequest(attach=attach)
        except (asyncio.CancelledError, DisconnectedError):
            # A client with a session may come back to its stream; only a cancellation ends its call.
            if not self._context.session or self._context.cancellation.requested:
                self._cancel()
            raise
        except (grpc.aio.AioRpcError, MeshError):
            self._cancel()
            raise

    async def _read(self, first: StreamInvocationRequest) -> Invocation | Asked | None:
        """Read until the end of the stream. None: it ended before the invocation did."""
        stream = self._follow.stream(first)
        if not self._name:
            message = await self._read_first(stream)
            if not isinstance(message, StreamInvocationResponse):
                return None
            self._name = message.invocation.name
        try:
            await self._reports.begin(self._name.removeprefix("invocations/"), self._after)
            while True:
                message = await stream.read()
                if not isinstance(message, StreamInvocationResponse):
                    return None
                outcome = await self._take(message)
                if outcome is not None:
                    return outcome
        finally:
            stream.cancel()

    async def _read_first(self, stream: Any) -> Any:
        """Read the message with the name. A request that is cancelled before leaves no invocation behind."""
        reading = asyncio.ensure_future(stream.read())
        try:
            return await asyncio.shield(reading)
        except asyncio.CancelledError:
            self._follow.cancel_unnamed_soon(stream, reading)
            raise

    async def _take(self, message: StreamInvocationResponse) -> Invocation | Asked | None:
        kind = message.WhichOneof("message")
        if kind == "heartbeat":
            await self._context.stream.ping()
        elif kind == "event":
            return await self._event(message.event)
        return None

    async def _event(self, event: InvocationEvent) -> Invocation | Asked | None:
        self._after = event.sequence
        kind = event.WhichOneof("event")
        if kind == "ended":
            return event.ended
        invocation_id = self._name.removeprefix("invocations/")
        if kind != "input_request":
            await self._reports.show(invocation_id, event)
            return None
        if not self._context.session:
            return Asked(invocation_id, event.input_request, event.sequence)
        await self._ask(invocation_id, event.input_request, event.sequence)
        return None

    async def _ask(self, invocation_id: str, asked: InputRequest, sequence: int) -> None:
        """Ask the client of a session, with a message for each thing that it is asked for."""
        if not asked.client_requests and not self._context.client.elicitation:
            raise MeshError(
                Reason.FAILED_PRECONDITION, message="the tool asks its caller, and this client cannot answer"
            )
        question, _ = ask(invocation_id, asked)
        requests = list(client_requests(asked).items())
        for number, (key, request) in enumerate(requests, 1):
            if asked.client_requests:
                question = question._replace(key=key, form="several" if len(requests) > 1 else "requests")
            # A stream that is cut before the last one goes on with all of them: their ids are the same then.
            await self._reports.ask(question, request, sequence if number == len(requests) else sequence - 1)

    def _cancel(self) -> None:
        if self._owned and self._name:
            self._follow.cancel_soon(self._name)


async def _only(first: StreamInvocationRequest) -> AsyncIterator[StreamInvocationRequest]:
    """Send one message, and keep the stream open: its end would not be that of the invocation."""
    yield first
    await asyncio.Event().wait()
