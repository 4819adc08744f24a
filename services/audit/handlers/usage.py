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
        usage_filter = convert.filter_of(request.filter, serving().tenant)
        return convert.usage_message(await get_usage(self.counts, usage_filter, self.clock.now()))

    async def GetToolUsage(self, request: pb.GetToolUsageRequest, context: Any) -> pb.GetToolUsageResponse:
        [report] = await get_tool_usage(
            self.counts, [convert.tool_usage_request(request, serving().tenant)], self.clock.now()
        )
        return convert.tool_message(request.name, report)

    async def BatchGetToolUsage(
        self, request: pb.BatchGetToolUsageRequest, context: Any
    ) -> pb.BatchGetToolUsageResponse:
        requests = [convert.tool_usage_request(item, serving().tenant) for item in request.requests]
        reports = await get_tool_usage(self.counts, requests, self.clock.now())
        usages = [convert.tool_message(item.name, report) for item, report in zip(requests, reports, strict=True)]
        return pb.BatchGetToolUsageResponse(usages=usages)

    async def ListTopUsage(self, request: pb.ListTopUsageRequest, context: Any) -> pb.ListTopUsageResponse:
        top = convert.top_usage_request(request, serving().tenant)
        return convert.top_message(top.group, await list_top_usage(self.counts, top, self.clock.now()))
