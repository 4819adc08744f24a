"""Connections to WebSocket services: to checked addresses, whatever a name says the second time."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_network

import pytest

from libs.common.egress.public_addresses import PublicAddresses
from services.executor.adapters.upstreams.mcp.transport import ServerLostError
from services.executor.adapters.upstreams.websocket.connection import WebSocketConnector
from tests.harness.servers.websocket_server import websocket_server

LOOPBACK = PublicAddresses([ip_network("127.0.0.0/8")])


async def test_the_connection_goes_to_the_address_that_was_checked() -> None:
    asked: list[str] = []

    async def resolve(host: str) -> Sequence[str]:
        asked.append(host)
        return ["127.0.0.1"]

    async with websocket_server() as server:
        url = server.url.replace("127.0.0.1", "rebound.example")
        connector = WebSocketConnector(url, [], resolve, LOOPBACK, 1 << 20)
        connection = await connector.open({"x-key": "1"})
        await connection.close()
    assert (asked, connector.host) == (["rebound.example"], "rebound.example")


async def test_another_address_is_tried_and_a_silent_one_is_lost() -> None:
    async def resolve(host: str) -> Sequence[str]:
        return ["127.0.0.2", "127.0.0.1"]

    async with websocket_server() as server:
        connector = WebSocketConnector(server.url, [], resolve, LOOPBACK, 1 << 20)
        await (await connector.open({})).close()
        lost = WebSocketConnector("ws://127.0.0.1:1/", [], resolve, LOOPBACK, 1 << 20)
        with pytest.raises(ServerLostError):
            await lost.open({})


async def test_a_proxy_of_the_environment_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve(host: str) -> Sequence[str]:
        return ["127.0.0.1"]

    for name in ("http_proxy", "https_proxy", "all_proxy", "ws_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with websocket_server() as server:
        connector = WebSocketConnector(server.url, [], resolve, LOOPBACK, 1 << 20)
        await (await connector.open({})).close()
