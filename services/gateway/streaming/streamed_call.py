"""Runs `tools.invoke` as an invocation whose events reach the client while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
from google.protobuf.duration_pb2 import Duration
from toolmesh.executor.v1.executor_service_pb2 import InvokeRequest
from toolmesh.executor.v1.invocation_pb2 import Invocation
from toolmesh.executor.v1.invocation_service_pb2 import (
    ON_DISCONNECT_CANCEL,
    AttachInvocation,
    StartInvocationRequest,
    StreamInvocationRequest,
    StreamInvocationResponse,
)

from libs.common.call_context import serving
from libs.common.errors import MeshError, Reason
from libs.common.rpc.status import from_envelope
from libs.common.runtime.backoff import Backoff
from services.gateway import convert
from services.gateway.streaming.event_ids import StreamEventId, call_digest, parse_event_id
from services.gateway.transport.response_stream import ResponseStream

if TYPE_CHECKING:
    from toolmesh.executor.v1.invocation_service_pb2_grpc import InvocationServiceAsyncStub

EVENT_METHOD = "invocations.event"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0


class StreamedCalls:
    """Calls tools for clients that accept events. A client that is cut off has 30 seconds to come back."""

    def __init__(self, invocations: InvocationServiceAsyncStub) -> None:
        self._invocations = invocations

    async def invoke(self, params: dict[str, Any], stream: ResponseStream, last_event_id: str) -> Any:
        """Return the result envelope, after the events; behind an event that the client saw, if it names one.

        Raises the error of the call, and INVALID_REQUEST for the event of another call.
        """
        serving().tool = params["tool"]
        request = convert.invoke_request(params)
        digest = call_digest(request.tool, request.arguments)
        seen = parse_event_id(last_event_id, digest) if last_event_id else None
        following = _Following(self._invocations, stream, digest, seen)
        ended = await following.run(_start(request))
        if ended.HasField("result"):
            return convert.result_json(ended.result)
        raise from_envelope(ended.error) if ended.HasField("error") else MeshError(Reason.INTERNAL)


class _Following:
    def __init__(
        self,
        invocations: InvocationServiceAsyncStub,
        stream: ResponseStream,
        digest: str,
        seen: StreamEventId | None,
    ) -> None:
        self._invocations, self._stream, self._digest = invocations, stream, digest
        self._name, self._after = ("", 0) if seen is None else (seen.invocation, seen.sequence)

    async def run(self, start: StreamInvocationRequest) -> Invocation:
        """Read to the end of the invocation. A replica that is lost is replaced by another one."""
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            attach = AttachInvocation(name=self._name, after_sequence=self._after)
            first = StreamInvocationRequest(attach=attach) if self._name else start
            try:
                ended = await self._read(first)
            except grpc.aio.AioRpcError as error:
                if not self._name or error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                ended = None
            if ended is not None:
                return ended
            if not self._name:
                raise MeshError(Reason.SERVICE_UNAVAILABLE, metadata={"outcome": "unknown"})
            await backoff.wait()

    async def _read(self, first: StreamInvocationRequest) -> Invocation | None:
        """Read until the end of the stream. None: it ended before the invocation did."""
        stream = self._invocations.StreamInvocation(_only(first))
        try:
            while True:
                message = await stream.read()
                if not isinstance(message, StreamInvocationResponse):
                    return None
                ended = await self._take(message)
                if ended is not None:
                    return ended
        finally:
            stream.cancel()

    async def _take(self, message: StreamInvocationResponse) -> Invocation | None:
        kind = message.WhichOneof("message")
        if kind == "invocation" and not self._stream.opened:
            self._name = message.invocation.name
            await self._stream.prime(self._event_id(self._after))
        elif kind == "heartbeat":
            await self._stream.ping()
        elif kind == "event":
            event, self._after = message.event, message.event.sequence
            if event.WhichOneof("event") == "ended":
                return event.ended
            shown = {"jsonrpc": "2.0", "method": EVENT_METHOD, "params": convert.message_json(event)}
            await self._stream.send(shown, self._event_id(event.sequence))
        return None

    def _event_id(self, sequence: int) -> str:
        return StreamEventId(self._name.removeprefix("invocations/"), sequence, self._digest).encoded()


def _start(request: InvokeRequest) -> StreamInvocationRequest:
    duration = Duration()
    duration.FromMilliseconds(max(1, int((serving().remaining() or 0) * 1000)))
    start = StartInvocationRequest(request=request, max_duration=duration, on_disconnect=ON_DISCONNECT_CANCEL)
    return StreamInvocationRequest(start=start)


async def _only(first: StreamInvocationRequest) -> AsyncIterator[StreamInvocationRequest]:
    """Send one message, and keep the stream open: its end would not be that of the invocation."""
    yield first
    await asyncio.Event().wait()
