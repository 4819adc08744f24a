"""Handles the RPCs of the invocation service, in proto order."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from toolmesh.executor.v1 import invocation_service_pb2 as pb
from toolmesh.executor.v1 import invocation_service_pb2_grpc as rpc

from libs.common.call_context import serving
from services.executor.convert import invocation as convert
from services.executor.convert import jobs as convert_jobs
from services.executor.domain.jobs.cancel_invocation import CancelInvocation
from services.executor.domain.jobs.find_invocations import FindInvocations
from services.executor.domain.jobs.job import Job, JobOwner
from services.executor.domain.jobs.start_invocation import StartRequest
from services.executor.domain.jobs.watch_invocation import WatchInvocation
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

    async def StartInvocation(self, request: pb.StartInvocationRequest, context: Any) -> pb.StartInvocationResponse:
        call = serving()
        asked = convert.request_of(request.request, call)
        seconds, callback = convert_jobs.max_seconds_of(request), self.callback_of(request)
        job = await self.start.execute(StartRequest(asked, call.token, seconds, callback))
        return convert_jobs.started_of(job)

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
                message = convert_jobs.event_of(event)
                if event.state in TERMINAL:
                    message.ended.CopyFrom(convert_jobs.invocation_of(await self.find.get(owner, invocation_id)))
                yield message


def _owner() -> JobOwner:
    caller = serving().caller
    return JobOwner(caller.tenant, caller.subject)
