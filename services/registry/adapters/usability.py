"""Asks authz which tools the current caller may use. The caller's token is forwarded."""

from __future__ import annotations

from collections.abc import Sequence

import grpc.aio
from toolmesh.authz.v1 import authz_service_pb2 as pb
from toolmesh.authz.v1.authz_service_pb2_grpc import AuthzServiceStub

from libs.authz_client.tool_attributes import tool_attributes
from libs.common.rpc.status import from_rpc_error
from libs.common.runtime.clock import Clock
from services.registry.convert.registry import tool_version
from services.registry.domain.model import ToolVersion
from services.registry.domain.trust.ports import TrustScores


class AuthzUsability:
    """Asks authz about one page of tools at a time, which is its limit."""

    def __init__(self, channel: grpc.aio.Channel, trust: TrustScores, clock: Clock) -> None:
        self._stub, self._trust, self._clock = AuthzServiceStub(channel), trust, clock

    async def usable(self, versions: Sequence[ToolVersion]) -> Sequence[bool]:
        """Return one answer for each version, in order. Raises the error of authz, or SERVICE_UNAVAILABLE."""
        now = self._clock.now().timestamp()
        tools = [tool_attributes(tool_version(version, self._trust), now) for version in versions]
        request = pb.FilterToolsRequest(tools=tools)
        try:
            response: pb.FilterToolsResponse = await self._stub.FilterTools(request)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from None
        return [usability in (pb.USABILITY_ALLOWED, pb.USABILITY_NEEDS_APPROVAL) for usability in response.tools]
