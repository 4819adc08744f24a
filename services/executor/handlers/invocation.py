"""Handles the RPCs of the invocation service, in proto order."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from toolmesh.executor.v1 import invocation_pb2 as ipb
from toolmesh.executor.v1 import invocation_service_pb2 as pb
from toolmesh.executor.v1 import invocation_service_pb2_grpc as rpc

from libs.common.call_context import serving
from libs.common.rpc.status import envelope
from libs.common.runtime.clock import Clock
from services.executor.convert import jobs as convert_jobs
from services.executor.domain.jobs import errors as job_errors
from services.executor.domain.jobs.event import JobEvent
from services.executor.domain.jobs.job import Job, JobOwner
from services.executor.domain.jobs.requests.answer_question import AnswerQuestion
from services.executor.domain.jobs.requests.cancel_invocation import CancelInvocation
from services.executor.domain.jobs.requests.find_invocations import FindInvocations
from services.executor.domain.jobs.requests.start_invocation import StartRequest
from services.executor.domain.jobs.requests.stream_invocation import Refusal, StreamInvocation
from services.executor.domain.jobs.requests.watch_invocation import WatchInvocation
from services.executor.domain.scheduling.caller_limits import CallerLimits, LimitedCalls
from services.executor.domain.states import TERMINAL
from services.executor.handlers.checkpoints import CheckpointHandlers


@dataclass(frozen=True)
class InvocationHandlers(CheckpointHandlers, rpc.InvocationServiceServicer):
    """Converts requests, calls the use cases, and converts their results."""

    limits: CallerLimits
    start: LimitedCalls[StartRequest, Job]
    find: FindInvocations
    cancel: CancelInvocation
    watch: WatchInvocation
    stream: StreamInvocation
    answer: AnswerQuestion
    clock: Clock

    async def StartInvocation(self, request: pb.StartInvocationRequest, context: Any) -> pb.StartInvocationResponse:
        asked = convert_jobs.start_request_of(request, serving())
        if asked.cancel_when_detached:
            raise job_errors.stream_only()
        job = await self.start.execute(asked)
        return convert_jobs.started_of(job, await self.find.estimate_seconds(job))

    async def GetInvocation(self, request: pb.GetInvocationRequest, context: Any) -> pb.GetInvocationResponse:
        job = await self.find.get(_owner(), convert_jobs.invocation_id_of(request.name))
        return pb.GetInvocationResponse(invocation=convert_jobs.invocation_of(job))

    async def ListInvocations(self, request: pb.ListInvocationsRequest, context: Any) -> pb.ListInvocationsResponse:
        owner = _owner()
        wanted, after = convert_jobs.filter_of(request, owner), convert_jobs.cursor_of(request, owner)
        page = await self.find.page(wanted, request.page_size or convert_jobs.DEFAULT_PAGE, after)
        return convert_jobs.page_of(request, owner, page)

    async def WaitInvocation(self, request: pb.WaitInvocationRequest, context: Any) -> pb.WaitInvocationResponse:
        seconds = convert_jobs.wait_seconds_of(request, serving().remaining())
        with self.limits.hold(_owner(), 1):
            job = await self.watch.wait(_owner(), convert_jobs.invocation_id_of(request.name), seconds)
        return pb.WaitInvocationResponse(invocation=convert_jobs.invocation_of(job))

    async def CancelInvocation(self, request: pb.CancelInvocationRequest, context: Any) -> pb.CancelInvocationResponse:
        job = await self.cancel.execute(_owner(), convert_jobs.invocation_id_of(request.name))
        return pb.CancelInvocationResponse(invocation=convert_jobs.invocation_of(job))

    async def WatchInvocation(
        self, request: pb.WatchInvocationRequest, context: Any
    ) -> AsyncIterator[pb.WatchInvocationResponse]:
        owner, invocation_id = _owner(), convert_jobs.invocation_id_of(request.name)
        with self.limits.hold(owner, 1):
            async for event in self.watch.follow(owner, invocation_id, request.after_sequence):
                if event is None:
                    yield pb.WatchInvocationResponse(heartbeat=convert_jobs.heartbeat_of(self.clock.now()))
                else:
                    yield pb.WatchInvocationResponse(event=await self._event(owner, invocation_id, event))

    async def StreamInvocation(
        self, requests: AsyncIterator[pb.StreamInvocationRequest], context: Any
    ) -> AsyncIterator[pb.StreamInvocationResponse]:
        owner = _owner()
        with self.limits.hold(owner, 1):
            job, after = await self._open(owner, requests)
            yield pb.StreamInvocationResponse(invocation=convert_jobs.invocation_of(job))
            async for message in self.stream.run(owner, job, after, convert_jobs.messages_of(requests)):
                if message is None:
                    yield pb.StreamInvocationResponse(heartbeat=convert_jobs.heartbeat_of(self.clock.now()))
                elif isinstance(message, Refusal):
                    yield pb.StreamInvocationResponse(refusal=envelope(message.error))
                else:
                    yield pb.StreamInvocationResponse(event=await self._event(owner, job.invocation_id, message))

    async def ResumeInvocation(self, request: pb.ResumeInvocationRequest, context: Any) -> pb.ResumeInvocationResponse:
        invocation_id = convert_jobs.invocation_id_of(request.name)
        if request.HasField("checkpoint"):
            job = await self.resume_from_checkpoint(request)
        else:
            answer = request.input
            job = await self.answer.execute(_owner(), invocation_id, answer.input_id, answer.content)
        return pb.ResumeInvocationResponse(invocation=convert_jobs.invocation_of(job))

    async def _open(self, owner: JobOwner, requests: AsyncIterator[pb.StreamInvocationRequest]) -> tuple[Job, int]:
        """Start or find the invocation of a stream; return it, and the sequence behind which to begin."""
        first = await self.stream.first_message(requests)
        if first is not None and first.HasField("attach"):
            job = await self.find.get(owner, convert_jobs.invocation_id_of(first.attach.name))
            return job, first.attach.after_sequence
        if first is None or not first.HasField("start"):
            raise job_errors.stream_not_opened("the first message of a stream starts an invocation or attaches to one")
        return await self.start.execute(convert_jobs.start_request_of(first.start, serving())), 0

    async def _event(self, owner: JobOwner, invocation_id: str, event: JobEvent) -> ipb.InvocationEvent:
        ended = await self.find.get(owner, invocation_id) if event.state in TERMINAL else None
        return convert_jobs.event_of(event, invocation_id, ended)


def _owner() -> JobOwner:
    caller = serving().caller
    return JobOwner(caller.tenant, caller.subject)
