"""A WebSocket service of an upstream: what the deployment says about it, and whether it answers. A source of tools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property

from toolmesh.registry.v1 import upstream_pb2
from toolmesh.registry.v1 import upstream_service_pb2 as pb

from services.executor.adapters.upstreams.mcp.transport import ServerLostError
from services.executor.adapters.upstreams.source import bounded_tools
from services.executor.adapters.upstreams.websocket.connection import WebSocketConnector
from services.executor.adapters.upstreams.websocket.operations import Operation, read_operation

ReadHeaders = Callable[[], Awaitable[Mapping[str, str]]]


class WebSocketService:
    """Implements Source."""

    poll_seconds = 30.0

    def __init__(
        self, endpoint: upstream_pb2.WebSocketEndpoint, connector: WebSocketConnector, headers: ReadHeaders
    ) -> None:
        """`headers` returns the credentials of the opening request that no caller has a part in."""
        self.endpoint, self.connector, self._headers = endpoint, connector, headers

    @cached_property
    def operations(self) -> Mapping[str, Operation]:
        """The operations by name."""
        return {each.name: read_operation(each) for each in self.endpoint.operations}

    async def discover(self) -> pb.Discovery:
        """Open a connection, and return the operations. Implements `Source.discover`."""
        from websockets.exceptions import InvalidStatus

        try:
            connection = await self.connector.open(await self._headers())
        except InvalidStatus as error:
            raise ServerLostError(f"the server answers with status {error.response.status_code}") from None
        await connection.close()
        tools = [
            pb.DiscoveredTool(native_name=each.name, definition=each.definition) for each in self.operations.values()
        ]
        return pb.Discovery(
            server_name=self.connector.host[:255], protocol_version="WebSocket", tools=bounded_tools(tools)
        )

    async def close(self) -> None:
        """Do nothing: every connection is closed by its user."""
