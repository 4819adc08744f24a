"""gRPC handlers of UsageService, in the order of the contract."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from toolmesh.audit.v1 import usage_service_pb2 as pb
from toolmesh.audit.v1 import usage_service_pb2_grpc as rpc

from libs.common.call_context import serving
from libs.common.runtime.clock import Clock
from services.audit.convert import usage as convert
from services.audit.domain.usage.get_tool_usage import get_tool_usage
from services.audit.domain.usage.get_usage import get_usage
from services.audit.domain.usage.list_top_usage import list_top_usage
from services.audit.domain.usage.ports import UsageReader


@dataclass(frozen=True)
class UsageHandlers(rpc.UsageServiceServicer):
    """Implements UsageService."""

    counts: UsageReader
    clock: Clock

    async def GetUsage(self, request: pb.GetUsageRequest, context: Any) -> pb.GetUsageResponse:
        query = convert.filter_of(request.filter, serving().tenant)
        return convert.usage_message(await get_usage(self.counts, query, self.clock.now()))

    async def GetToolUsage(self, request: pb.GetToolUsageRequest, context: Any) -> pb.GetToolUsageResponse:
        [answer] = await get_tool_usage(
            self.counts, [convert.tool_usage_request(request, serving().tenant)], self.clock.now()
        )
        return convert.tool_message(request.name, answer)

    async def BatchGetToolUsage(
        self, request: pb.BatchGetToolUsageRequest, context: Any
    ) -> pb.BatchGetToolUsageResponse:
        query = [convert.tool_usage_request(each, serving().tenant) for each in request.requests]
        answers = await get_tool_usage(self.counts, query, self.clock.now())
        found = [convert.tool_message(each.name, answer) for each, answer in zip(query, answers, strict=True)]
        return pb.BatchGetToolUsageResponse(usages=found)

    async def ListTopUsage(self, request: pb.ListTopUsageRequest, context: Any) -> pb.ListTopUsageResponse:
        query = convert.top_usage_request(request, serving().tenant)
        return convert.top_message(query.group, await list_top_usage(self.counts, query, self.clock.now()))
