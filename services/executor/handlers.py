"""The RPCs, in the order of the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from toolmesh.executor.v1 import executor_service_pb2 as pb
from toolmesh.executor.v1 import executor_service_pb2_grpc as rpc

from libs.common.call_context import serving
from services.executor.convert import group as convert_group
from services.executor.convert import invocation as convert
from services.executor.domain.fetch_result import FetchResult
from services.executor.domain.invoke import Invoke
from services.executor.domain.invoke_group.invoke_group import InvokeGroup
from services.executor.domain.preview.preview_invocation import Preview


@dataclass(frozen=True)
class ExecutorHandlers(rpc.ExecutorServiceServicer):
    """Answers the calls of the executor service."""

    invoke: Invoke
    group: InvokeGroup
    preview: Preview
    fetch: FetchResult

    async def Invoke(self, request: pb.InvokeRequest, context: Any) -> pb.InvokeResponse:
        result = await self.invoke(convert.request_of(request, serving()))
        return convert.response_of(result)

    async def InvokeGroup(self, request: pb.InvokeGroupRequest, context: Any) -> pb.InvokeGroupResponse:
        outcomes = await self.group(convert_group.group_of(request, serving()))
        return convert_group.group_response_of(outcomes)

    async def PreviewInvocation(
        self, request: pb.PreviewInvocationRequest, context: Any
    ) -> pb.PreviewInvocationResponse:
        foreseen = await self.preview(convert.request_of(request.request, serving()))
        return convert.preview_of(foreseen)

    async def FetchResult(self, request: pb.FetchResultRequest, context: Any) -> AsyncIterator[pb.FetchResultResponse]:
        call = serving()
        caller = convert.caller_of(call.caller, "", call.peer)
        async for piece in self.fetch(
            caller, request.ref, request.access_token, offset=request.offset, max_bytes=request.max_bytes
        ):
            yield convert.piece_of(piece)
