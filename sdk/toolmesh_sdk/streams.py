"""Invocations over one stream: their events as they happen, across broken connections."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Iterator
from queue import SimpleQueue
from typing import Any

import grpc
import grpc.aio
from toolmesh.common.v1.error_table import Reason
from toolmesh.executor.v1 import invocation_pb2 as ipb
from toolmesh.executor.v1 import invocation_service_pb2 as pb
from toolmesh.executor.v1.invocation_service_pb2_grpc import InvocationServiceStub

from toolmesh_sdk._wire.status import error_from_rpc
from toolmesh_sdk._wire.trace import trace_id_of
from toolmesh_sdk._wire.transport import AsyncTransport, Transport, canceled_when_closed
from toolmesh_sdk._wire.watch import StreamSession
from toolmesh_sdk.errors import ToolmeshError, error_for_reason
from toolmesh_sdk.jobs import AsyncJob, Job, outcome_of
from toolmesh_sdk.result import Result


def keyed(request: pb.StartInvocationRequest) -> pb.StartInvocationRequest:
    """Return a start that can be sent again when its answer is lost: with a key of its own where it has none."""
    if not request.request.idempotency_key:
        request.request.idempotency_key = f"stream-{uuid.uuid4()}"
    return request


class _Session:
    """What both kinds of stream know of their invocation."""

    def __init__(self, session: StreamSession) -> None:
        self._session = session
        self.question: ipb.InputRequest | None = None
        """The last question of the tool."""

    @property
    def name(self) -> str:
        """The name of the invocation; empty until the first event."""
        return self._session.name

    def _note(self, message: pb.StreamInvocationResponse) -> ipb.InvocationEvent | None:
        event = self._session.advance(message)
        if event is not None and event.HasField("input_request"):
            self.question = event.input_request
        return event

    def _question_id(self) -> str:
        if self.question is None:
            raise error_for_reason(Reason.FAILED_PRECONDITION, message="The tool has not asked anything.")
        return self.question.input_id

    def _outcome(self) -> Result:
        if self._session.last is None:
            message = f"{self.name or 'The invocation'} has not ended in time; it goes on."
            raise error_for_reason(Reason.DEADLINE_EXCEEDED, message=message, answered=False)
        return outcome_of(self._session.last)


class JobStream(_Session):
    """The events of an invocation, in order. Made by `Client.stream`.

    It connects again by itself: no event is missed or repeated. Iterate over it once; `answer` and `cancel` may be
    called between events or from another thread.
    """

    def __init__(self, transport: Transport, session: StreamSession) -> None:
        super().__init__(session)
        self._transport, self._stub = transport, InvocationServiceStub(transport.channel)

    def __iter__(self) -> Iterator[ipb.InvocationEvent]:
        session, options = self._session, self._transport.options
        while session.last is None and (seconds := session.next_stream()) is not None:
            trace, error = options.traceparent(), None
            outgoing: SimpleQueue[pb.StreamInvocationRequest | None] = SimpleQueue()
            outgoing.put(session.first_message())
            requests: Iterator[Any] = iter(outgoing.get, None)
            stream = self._stub.StreamInvocation(requests, timeout=seconds, metadata=options.metadata(trace))
            try:
                for message in stream:
                    event = self._note(message)
                    if (acknowledgement := session.due_acknowledgement()) is not None:
                        outgoing.put(acknowledgement)
                    if event is not None:
                        yield event
            except grpc.RpcError as failure:
                error = error_from_rpc(failure, trace_id_of(trace))
            finally:
                outgoing.put(None)
                stream.cancel()
            if session.last is None:
                self._transport.pause(session.wait_after(error))

    @property
    def job(self) -> Job:
        """The handle of the invocation, once it has a name."""
        return Job(self._transport, self.name)

    def answer(self, value: Any, input_id: str = "") -> None:
        """Answer a question, the last one by default. Raises InvalidInputError where it breaks the schema."""
        self.job.answer(value, input_id or self._question_id())

    def cancel(self) -> None:
        """Cancel the invocation. The stream goes on until its end."""
        self.job.cancel()

    def result(self) -> Result:
        """Read the events that are left, and return the result or raise the error of the invocation."""
        for _ in self:
            pass
        return self._outcome()


class AsyncJobStream(_Session):
    """The events of an invocation, in order, for asyncio. Made by `AsyncClient.stream`; see `JobStream`."""

    def __init__(self, transport: AsyncTransport, session: StreamSession) -> None:
        super().__init__(session)
        self._transport = transport
        self._stub: Any = InvocationServiceStub(transport.channel)

    async def __aiter__(self) -> AsyncGenerator[ipb.InvocationEvent]:
        session, options = self._session, self._transport.options
        while session.last is None and (seconds := session.next_stream()) is not None:
            trace = options.traceparent()
            error: ToolmeshError | None = None
            stream = self._stub.StreamInvocation(timeout=seconds, metadata=options.metadata(trace))
            try:
                with canceled_when_closed(trace):
                    await stream.write(session.first_message())
                    while (message := await stream.read()) is not grpc.aio.EOF:
                        event = self._note(message)
                        if (acknowledgement := session.due_acknowledgement()) is not None:
                            await stream.write(acknowledgement)
                        if event is not None:
                            yield event
            except grpc.RpcError as failure:
                error = error_from_rpc(failure, trace_id_of(trace))
            except asyncio.InvalidStateError:
                # The call ended while a message was written. Its status says why.
                error = await _status_of(stream, trace)
            finally:
                stream.cancel()
            if session.last is None:
                await self._transport.pause(session.wait_after(error))

    @property
    def job(self) -> AsyncJob:
        """The handle of the invocation, once it has a name."""
        return AsyncJob(self._transport, self.name)

    async def answer(self, value: Any, input_id: str = "") -> None:
        """Answer a question, the last one by default. Raises InvalidInputError where it breaks the schema."""
        await self.job.answer(value, input_id or self._question_id())

    async def cancel(self) -> None:
        """Cancel the invocation. The stream goes on until its end."""
        await self.job.cancel()

    async def result(self) -> Result:
        """Read the events that are left, and return the result or raise the error of the invocation."""
        async for _ in self:
            pass
        return self._outcome()


async def _status_of(stream: Any, trace: str) -> ToolmeshError | None:
    try:
        await stream.read()
    except grpc.RpcError as failure:
        return error_from_rpc(failure, trace_id_of(trace))
    return None
