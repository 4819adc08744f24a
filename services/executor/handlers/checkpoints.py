"""Handles the RPCs of the invocation service about checkpoints and callbacks, in proto order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from toolmesh.executor.v1 import invocation_service_pb2 as pb
from toolmesh.executor.v1.executor_service_pb2 import InvokeRequest

from libs.common.call_context import serving
from services.executor.convert import checkpoints as convert
from services.executor.convert.invocation import request_of
from services.executor.convert.jobs import DEFAULT_PAGE, invocation_id_of
from services.executor.domain.callbacks.find_deliveries import FindDeliveries
from services.executor.domain.jobs.job import Job, JobOwner
from services.executor.domain.jobs.requests.find_checkpoints import FindCheckpoints
from services.executor.domain.jobs.requests.resume_invocation import ResumeInvocation


@dataclass(frozen=True)
class CheckpointHandlers:
    """Converts requests, calls the use cases, and converts their results."""

    resume: ResumeInvocation
    checkpoints: FindCheckpoints
    deliveries: FindDeliveries

    async def resume_from_checkpoint(self, request: pb.ResumeInvocationRequest) -> Job:
        """Start a new invocation from a checkpoint of an ended one."""
        call = serving()
        return await self.resume.execute(
            _owner(),
            lambda session_id: request_of(InvokeRequest(session_id=session_id), call),
            call.token,
            invocation_id_of(request.name),
            convert.resume_number_of(request),
        )

    async def ListCheckpoints(self, request: pb.ListCheckpointsRequest, context: Any) -> pb.ListCheckpointsResponse:
        found = await self.checkpoints.page(_owner(), invocation_id_of(request.parent))
        return pb.ListCheckpointsResponse(checkpoints=[convert.checkpoint_of(checkpoint) for checkpoint in found])

    async def DeleteCheckpoint(self, request: pb.DeleteCheckpointRequest, context: Any) -> pb.DeleteCheckpointResponse:
        invocation_id, number = convert.checkpoint_name_of(request.name)
        await self.checkpoints.delete(_owner(), invocation_id, 0 if number is None else number)
        return pb.DeleteCheckpointResponse()

    async def ListCallbackDeliveries(
        self, request: pb.ListCallbackDeliveriesRequest, context: Any
    ) -> pb.ListCallbackDeliveriesResponse:
        owner = _owner()
        wanted, after = convert.delivery_filter_of(request, owner), convert.delivery_cursor_of(request, owner)
        found, cursor = await self.deliveries.page(wanted, request.page_size or DEFAULT_PAGE, after)
        return convert.deliveries_of(request, owner, found, cursor)

    async def RedeliverCallback(
        self, request: pb.RedeliverCallbackRequest, context: Any
    ) -> pb.RedeliverCallbackResponse:
        invocation_id = invocation_id_of(request.name).removesuffix("/callbackDelivery")
        delivery = await self.deliveries.redeliver(_owner(), invocation_id)
        return pb.RedeliverCallbackResponse(delivery=convert.delivery_of(delivery))


def _owner() -> JobOwner:
    caller = serving().caller
    return JobOwner(caller.tenant, caller.subject)
