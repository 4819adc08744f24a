"""Reads what tools printed and logged."""

from __future__ import annotations

from collections.abc import Iterator

from toolmesh.executor.v1 import tool_log_pb2
from toolmesh.executor.v1 import tool_log_service_pb2 as pb
from toolmesh.executor.v1.tool_log_service_pb2_grpc import ToolLogServiceStub

from toolmesh_sdk.client import Client

_MAX_PAGE_SIZE = 100


class ToolLogReader:
    """Reads logs through a client, which it does not close. Every failure is a ToolmeshError."""

    def __init__(self, client: Client) -> None:
        self._transport = client.transport

    def list(
        self,
        tool: str = "",
        *,
        version: str = "",
        invocation_id: str = "",
        number: int = 20,
        timeout: float | None = None,
    ) -> Iterator[tool_log_pb2.ToolLog]:
        """Yield the newest logs of a tool or of one invocation, the newest first. A tool or an invocation is required.

        The token needs the scope `tools:logs`.
        """
        stub = ToolLogServiceStub(self._transport.channel)
        request = pb.ListToolLogsRequest(
            tool=tool, version=version, invocation_id=invocation_id, page_size=min(number, _MAX_PAGE_SIZE)
        )
        while number > 0:
            page = self._transport.unary(stub.ListToolLogs, request, timeout, repeatable=True)
            yield from page.logs[:number]
            number -= len(page.logs)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token
