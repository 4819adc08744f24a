"""A WebSocket service as a source: its operations, and whether it answers."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_network

import pytest
from toolmesh.registry.v1 import upstream_pb2 as upb

from libs.common.egress.public_addresses import PublicAddresses
from services.executor.adapters.upstreams.mcp.transport import ServerLostError
from services.executor.adapters.upstreams.websocket.connection import WebSocketConnector
from services.executor.adapters.upstreams.websocket.service import WebSocketService
from tests.harness.servers.websocket_server import websocket_server


async def test_it_offers_what_is_described_while_it_answers() -> None:
    async def resolve(host: str) -> Sequence[str]:
        return ["127.0.0.1"]

    async def headers() -> dict[str, str]:
        return {"authorization": "Bearer of-discovery"}

    async with websocket_server() as server:
        allowed = PublicAddresses([ip_network("127.0.0.0/8")])
        endpoint = upb.WebSocketEndpoint(
            url=server.url, operations=[upb.WebSocketOperation(name="ask", input_schema=b"{}")]
        )
        service = WebSocketService(endpoint, WebSocketConnector(server.url, [], resolve, allowed, 1 << 20), headers)
        discovery = await service.discover()
        assert [(tool.native_name, tool.problem) for tool in discovery.tools] == [("ask", "")]
        assert server.authorization == ["Bearer of-discovery"]
        server.status = 403
        with pytest.raises(ServerLostError):
            await service.discover()
        await service.close()
