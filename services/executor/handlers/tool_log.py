"""Handles the RPCs of the tool log service, in proto order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from toolmesh.executor.v1 import tool_log_service_pb2 as logs_pb
from toolmesh.executor.v1 import tool_log_service_pb2_grpc as logs_rpc

from libs.common.call_context import serving
from services.executor.convert import tool_logs as convert_logs
from services.executor.domain.tool_logs.list_tool_logs import ListToolLogs


@dataclass(frozen=True)
class ToolLogHandlers(logs_rpc.ToolLogServiceServicer):
    """Converts requests, calls the use case, and converts its results."""

    list_logs: ListToolLogs

    async def ListToolLogs(self, request: logs_pb.ListToolLogsRequest, context: Any) -> logs_pb.ListToolLogsResponse:
        query, grants = convert_logs.query_of(request, serving()), convert_logs.grants_of(serving())
        page = await self.list_logs.execute(query, grants, page_size=request.page_size, page_token=request.page_token)
        return convert_logs.page_message(page)
