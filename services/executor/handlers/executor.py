"""Handles the RPCs of the executor service, in proto order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from toolmesh.executor.v1 import executor_service_pb2 as pb
from toolmesh.executor.v1 import executor_service_pb2_grpc as rpc
from toolmesh.executor.v1 import tool_log_service_pb2 as logs_pb
from toolmesh.executor.v1 import tool_log_service_pb2_grpc as logs_rpc

from libs.common.call_context import serving
from libs.common.rpc.stream_slots import StreamSlots, stream_holder
from services.executor.convert import group as convert_group
from services.executor.convert import invocation as convert
from services.executor.convert import tool_logs as convert_logs
from services.executor.domain.invoke_group.invoke_group import GroupOutcome
from services.executor.domain.invoke_group.plan import GroupCall
from services.executor.domain.model import PreviewResult, Request, Result
from services.executor.domain.resources.watch_resources import WatchResources
from services.executor.domain.results.fetch_result import FetchResult
from services.executor.domain.scheduling.caller_limits import LimitedCalls
from services.executor.domain.tool_logs.list_tool_logs import ListToolLogs


@dataclass(frozen=True)
class ExecutorHandlers(rpc.ExecutorServiceServicer):
    """Converts requests, calls the use cases, and converts their results."""

    invoke: LimitedCalls[Request, Result]
    group: LimitedCalls[Sequence[GroupCall], tuple[GroupOutcome, ...]]
    preview: LimitedCalls[Request, PreviewResult]
    fetch: FetchResult
    watch: WatchResources
    watch_slots: StreamSlots

    async def Invoke(self, request: pb.InvokeRequest, context: Any) -> pb.InvokeResponse:
        result = await self.invoke.execute(convert.request_of(request, serving()))
        return convert.response_of(result)

    async def InvokeGroup(self, request: pb.InvokeGroupRequest, context: Any) -> pb.InvokeGroupResponse:
        outcomes = await self.group.execute(convert_group.group_of(request, serving()))
        return convert_group.group_response_of(outcomes)

    async def PreviewInvocation(
        self, request: pb.PreviewInvocationRequest, context: Any
    ) -> pb.PreviewInvocationResponse:
        result = await self.preview.execute(convert.request_of(request.request, serving()))
        return convert.preview_of(result)

    async def FetchResult(self, request: pb.FetchResultRequest, context: Any) -> AsyncIterator[pb.FetchResultResponse]:
        call = serving()
        caller = convert.caller_of(call.caller, "", call.peer)
        async for piece in self.fetch.stream(
            caller, request.ref, request.access_token, offset=request.offset, max_bytes=request.max_bytes
        ):
            yield convert.piece_of(piece)

    async def WatchResources(
        self, request: pb.WatchResourcesRequest, context: Any
    ) -> AsyncIterator[pb.WatchResourcesResponse]:
        subscriptions = convert.subscriptions_of(request, serving())
        with self.watch_slots.hold(*stream_holder()):
            async for event in self.watch.stream(request.upstream, subscriptions):
                yield convert.watch_response_of(event)


@dataclass(frozen=True)
class ToolLogHandlers(logs_rpc.ToolLogServiceServicer):
    """Implements ToolLogService."""

    list_logs: ListToolLogs

    async def ListToolLogs(self, request: logs_pb.ListToolLogsRequest, context: Any) -> logs_pb.ListToolLogsResponse:
        query, grants = convert_logs.query_of(request, serving()), convert_logs.grants_of(serving())
        page = await self.list_logs.execute(query, grants, page_size=request.page_size, page_token=request.page_token)
        return convert_logs.page_message(page)
