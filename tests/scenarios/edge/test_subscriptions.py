"""Subscriptions to resources of a connected server, through the whole mesh, in both revisions."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from tests.conformance.upstream.server import FixtureServer
from tests.harness.mesh import Mesh, cli

VIEW, WATCHED, OTHER = "watched", "test://watched-resource", "test://static-text"
OLD, NEW = "2025-11-25", "2026-07-28"
HELLO = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
META = {"io.modelcontextprotocol/protocolVersion": NEW, "io.modelcontextprotocol/clientCapabilities": {}}
ACCEPT = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
SECONDS = 240.0


@pytest.fixture(scope="module")
def mesh(mesh_with_views: Mesh) -> Mesh:
    return mesh_with_views


@pytest.fixture(scope="module")
def server(mesh: Mesh) -> Iterator[FixtureServer]:
    made = FixtureServer()
    threading.Thread(target=made.serve_forever, daemon=True).start()
    cli("connect", "mcp", made.url, "--id", VIEW, state=mesh.state)
    yield made
    made.shutdown()


class SessionClient:
    """A client with a session at the view."""

    def __init__(self, mesh: Mesh, token: str) -> None:
        self.url, self._headers = f"{mesh.url}/mcp/{VIEW}", {**ACCEPT, "authorization": f"Bearer {token}"}

    def send(self, method: str, **params: Any) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = httpx.post(self.url, json=body, headers=self._headers, timeout=60, trust_env=False)
        if session := answer.headers.get("mcp-session-id"):
            self._headers |= {"mcp-session-id": session, "mcp-protocol-version": OLD}
        return answer.json()

    @asynccontextmanager
    async def stream(self) -> AsyncIterator[AsyncIterator[Any]]:
        """Open the stream of the session, once the edge knows that the gateway is there."""
        headers = {**self._headers, "accept": "text/event-stream"}
        async with asyncio.timeout(SECONDS), httpx.AsyncClient(timeout=SECONDS, trust_env=False) as http:
            while True:
                async with http.stream("GET", self.url, headers=headers) as response:
                    if response.status_code != 503:
                        assert response.status_code == 200
                        yield updates(response)
                        return
                await asyncio.sleep(0.2)


async def updates(response: httpx.Response) -> AsyncIterator[Any]:
    async for line in response.aiter_lines():
        if line.startswith("data: ") and "list_changed" not in line:
            yield json.loads(line.removeprefix("data: "))


async def update_until_heard(server: FixtureServer, messages: AsyncIterator[Any], uri: str) -> Any:
    """Change a resource, once it is watched, and return the next message."""
    async with asyncio.timeout(SECONDS):
        while not server.watches.update(uri):  # noqa: ASYNC110  (the mesh watches it when it is ready)
            await asyncio.sleep(0.05)
        return await anext(messages)


async def test_a_session_hears_of_changes_also_after_the_gateway_was_restarted(
    mesh: Mesh, server: FixtureServer
) -> None:
    client = SessionClient(mesh, mesh.token())
    opened = await asyncio.to_thread(client.send, "initialize", **HELLO)
    assert opened["result"]["capabilities"]["resources"] == {"subscribe": True}
    assert (await asyncio.to_thread(client.send, "resources/subscribe", uri=WATCHED))["result"] == {}
    missing = await asyncio.to_thread(client.send, "resources/subscribe", uri="test://nowhere")
    assert missing["error"]["code"] == -32002
    updated = {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": WATCHED}}
    async with client.stream() as messages:
        # The watch begins: what happened before is not known.
        assert await anext(messages) == updated
        assert await update_until_heard(server, messages, WATCHED) == updated
    await asyncio.to_thread(cli, "restart", "gateway", state=mesh.state)
    async with client.stream() as messages:
        assert await anext(messages) == updated
        assert await update_until_heard(server, messages, WATCHED) == updated
        await asyncio.to_thread(client.send, "resources/unsubscribe", uri=WATCHED)
        async with asyncio.timeout(SECONDS):
            while server.watches.update(WATCHED):  # noqa: ASYNC110  (the mesh ends the watch when it is ready)
                await asyncio.sleep(0.05)


async def test_a_stateless_client_is_granted_what_its_token_allows_and_each_resource_is_on_record(
    mesh: Mesh, server: FixtureServer
) -> None:
    tools = f"{VIEW}.resources_subscribe"
    for token, granted in ((mesh.token(tools=tools), [WATCHED]), (mesh.token(tools="core.echo"), None)):
        wishes = {"resourceSubscriptions": [WATCHED, "test://nowhere"]}
        params = {"notifications": wishes, "_meta": META}
        body = {"jsonrpc": "2.0", "id": 7, "method": "subscriptions/listen", "params": params}
        headers = {
            **ACCEPT,
            "authorization": f"Bearer {token}",
            "mcp-protocol-version": NEW,
            "mcp-method": "subscriptions/listen",
        }
        async with (
            httpx.AsyncClient(timeout=SECONDS, trust_env=False) as http,
            http.stream("POST", f"{mesh.url}/mcp/{VIEW}", json=body, headers=headers) as response,
        ):
            messages = updates(response)
            acknowledged = (await anext(messages))["params"]["notifications"]
            assert acknowledged.get("resourceSubscriptions") == granted
            if granted:
                heard = await update_until_heard(server, messages, WATCHED)
                assert heard["params"]["uri"] == WATCHED
    for authorization in ("allow", "deny"):
        query = {"authorization": authorization, "page_size": 100}
        records = mesh.rpc("audit.query", query, token=mesh.token()).json()["result"]["records"]
        assert tools in json.dumps(records)
