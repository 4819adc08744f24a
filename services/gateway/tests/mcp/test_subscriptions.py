"""Subscriptions to resources, as two gateways serve them that share a Valkey, keys and nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio

from libs.common.sealing import new_key
from services.gateway.adapters.mcp_subscriptions import MAX_SUBSCRIPTIONS
from services.gateway.tests.conftest import Mesh, run_mesh
from services.gateway.tests.mcp.test_endpoint import META, NEW, OLD, McpClient

pytestmark = pytest.mark.asyncio(loop_scope="module")
ONE, TWO = "test://one", "test://two"
STORED = "toolmesh://results/00000000-0000-0000-0000-000000000000?token=t"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def both(
    pki: Any, signer: Any, valkey_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Mesh, Mesh]]:
    folder = tmp_path_factory.mktemp("subscriptions")
    views = folder / "views.json"
    views.write_text(json.dumps({"views": {"core": {"namespace": "core"}}}))
    _make_keys(folder / "keys")
    chosen = {
        "TOOLMESH_REDIS_URL": valkey_url,
        "TOOLMESH_MCP_VIEWS": str(views),
        "TOOLMESH_CONSOLE_KEYS": str(folder / "keys"),
    }
    for name in ("a", "b"):
        (folder / name).mkdir()
    async with run_mesh(pki, signer, folder / "a", **chosen) as a, run_mesh(pki, signer, folder / "b", **chosen) as b:
        for mesh in (a, b):
            await mesh.peers.registry.watched.wait()
        yield a, b


def _make_keys(folder: Path) -> None:
    folder.mkdir()
    (folder / "1.key").write_bytes(new_key())


@pytest_asyncio.fixture(loop_scope="module")
async def a(both: tuple[Mesh, Mesh]) -> AsyncIterator[Mesh]:
    yield both[0]
    await both[0].forget()


@pytest_asyncio.fixture(loop_scope="module")
async def b(both: tuple[Mesh, Mesh]) -> AsyncIterator[Mesh]:
    yield both[1]
    await both[1].forget()


@asynccontextmanager
async def stream_of(client: McpClient) -> AsyncIterator[AsyncIterator[Any]]:
    """Open the stream of a session, and yield its messages."""
    headers = {"mcp-session-id": client.session, "mcp-protocol-version": OLD, "accept": "text/event-stream"}
    async with client.http.stream("GET", client.path, headers=headers) as response:
        assert response.status_code == 200
        yield _messages(response.aiter_lines())


async def _messages(lines: AsyncIterator[str]) -> AsyncIterator[Any]:
    async for line in lines:
        if line.startswith("data: "):
            yield orjson.loads(line.removeprefix("data: "))


async def reach(mesh: Mesh, watches: int) -> Any:
    """Return the last watch of an executor, once it has so many."""
    async with asyncio.timeout(60):
        while len(mesh.peers.executor.watches) < watches:  # noqa: ASYNC110  (the gateway opens it when it is ready)
            await asyncio.sleep(0.01)
    return mesh.peers.executor.watches[-1]


async def test_a_subscription_made_at_one_replica_is_followed_by_the_other(a: Mesh, b: Mesh) -> None:
    token = a.signer.mint()
    here, there = McpClient(a, token=token, path="/mcp/core"), McpClient(b, token=token, path="/mcp/core")
    there.session = await here.open()
    async with asyncio.timeout(60), stream_of(there) as messages:
        assert (await here.old("resources/subscribe", {"uri": ONE})).json()["result"] == {}
        assert a.peers.executor.seen[-1][0].tool == "core.resources_subscribe"
        # What happened before the watch began is not known.
        first = {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": ONE}}
        assert await anext(messages) == first
        assert (await reach(b, 1)).upstream == "core"
        b.peers.executor.updates.put_nowait(ONE)
        assert await anext(messages) == first
        await here.old("resources/subscribe", {"uri": TWO})
        assert (await anext(messages))["params"] == {"uri": TWO}
        assert list((await reach(b, 2)).uris) == [ONE, TWO]
        await here.old("resources/unsubscribe", {"uri": ONE})
        assert list((await reach(b, 3)).uris) == [TWO]
    # After a restart a new stream goes on with what the session has.
    async with asyncio.timeout(60), stream_of(here) as messages:
        assert (await anext(messages))["params"] == {"uri": TWO}


async def test_a_lost_watch_is_opened_again_and_says_that_changes_may_be_missing(a: Mesh) -> None:
    client = McpClient(a, path="/mcp/core")
    await client.open()
    await client.old("resources/subscribe", {"uri": ONE})
    async with asyncio.timeout(60), stream_of(client) as messages:
        await anext(messages)
        a.peers.executor.updates.put_nowait("")
        assert (await anext(messages))["params"] == {"uri": ONE}
        assert len(a.peers.executor.watches) == 2


async def test_a_session_has_a_bounded_number_of_subscriptions_and_ends_with_them(a: Mesh, valkey_url: str) -> None:
    client = McpClient(a, path="/mcp/core")
    await client.open()
    for number in range(MAX_SUBSCRIPTIONS):
        assert "result" in (await client.old("resources/subscribe", {"uri": f"test://{number}"})).json()
    refused = (await client.old("resources/subscribe", {"uri": ONE})).json()["error"]
    assert refused["data"]["reason"] == "RATE_LIMITED"
    assert "result" in (await client.old("resources/subscribe", {"uri": "test://0"})).json()
    long = (await client.old("resources/subscribe", {"uri": "test://" + "x" * 3000})).json()
    assert long["error"]["code"] == -32602
    headers = {"mcp-session-id": client.session, "mcp-protocol-version": OLD}
    assert (await client.http.delete(client.path, headers=headers)).status_code == 204
    assert (await client.old("resources/subscribe", {"uri": ONE})).status_code == 404


async def test_a_stored_result_is_subscribed_to_and_what_does_not_exist_is_not(a: Mesh) -> None:
    client = McpClient(a)
    await client.open()
    assert (await client.old("resources/subscribe", {"uri": STORED})).json()["result"] == {}
    assert (await client.old("resources/unsubscribe", {"uri": STORED})).json()["result"] == {}
    # The view of all tools has no resources of servers.
    assert (await client.old("resources/subscribe", {"uri": ONE})).json()["error"]["code"] == -32002


async def test_a_view_advertises_subscriptions_of_its_server(a: Mesh) -> None:
    for path, resources in (("/mcp/core", {"subscribe": True}), ("/mcp", {})):
        discovered = (await McpClient(a, path=path).new("server/discover")).json()["result"]
        assert discovered["capabilities"]["resources"] == resources


async def test_a_stateless_client_hears_of_the_resources_that_it_names(a: Mesh) -> None:
    client = McpClient(a, path="/mcp/core")
    wishes = {"resourceSubscriptions": [ONE, "test://refused", STORED], "toolsListChanged": True}
    body = {"notifications": wishes, "_meta": META}
    message = {"jsonrpc": "2.0", "id": 9, "method": "subscriptions/listen", "params": body}
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": NEW,
        "mcp-method": "subscriptions/listen",
    }
    async with (
        asyncio.timeout(60),
        client.http.stream("POST", "/mcp/core", content=orjson.dumps(message), headers=headers) as response,
    ):
        messages = _messages(response.aiter_lines())
        granted = (await anext(messages))["params"]["notifications"]
        assert granted == {"toolsListChanged": True, "resourceSubscriptions": [ONE, STORED]}
        a.peers.executor.updates.put_nowait(ONE)
        updated = await anext(messages)
        assert updated["method"] == "notifications/resources/updated"
        assert updated["params"] == {"uri": ONE, "_meta": {"io.modelcontextprotocol/subscriptionId": 9}}
    # A stateless client names all that it wants; there is no method for one resource.
    assert (await client.new("resources/subscribe", {"uri": ONE})).json()["error"]["code"] == -32601
