"""The RPCs of the runner service, in the order of the contract."""

from __future__ import annotations

from typing import Any

from toolmesh.registry.v1 import runner_service_pb2 as pb
from toolmesh.registry.v1 import runner_service_pb2_grpc as rpc

from services.registry.convert import runners as convert
from services.registry.domain.runners.announce_runners import announce_runners
from services.registry.domain.runners.ports import Announcements


class RunnerHandlers(rpc.RunnerServiceServicer):
    """Serves executors. The RPC chain has already authenticated and authorized the peer."""

    def __init__(self, announcements: Announcements) -> None:
        self._announcements = announcements

    async def AnnounceRunners(self, request: pb.AnnounceRunnersRequest, context: Any) -> pb.AnnounceRunnersResponse:
        lease = await announce_runners(convert.announcement_of(request), announcements=self._announcements)
        return convert.announce_response(lease)

    async def WithdrawRunners(self, request: pb.WithdrawRunnersRequest, context: Any) -> pb.WithdrawRunnersResponse:
        await self._announcements.remove(request.instance, request.process_id)
        return pb.WithdrawRunnersResponse()
