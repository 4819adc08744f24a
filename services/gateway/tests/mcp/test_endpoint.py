"""MCP over HTTP, as two gateways serve it that share a Valkey and nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import orjson
import pytest
import pytest_asyncio
from mcp_types.methods import validate_server_result

from services.gateway.mcp.http.notification_streams import MAX_STREAMS_OF_ONE
from services.gateway.tests.conftest import Mesh, run_mesh

pytestmark = pytest.mark.asyncio(loop_scope="module")
ORIGIN = "https://127.0.0.1"
OLD, NEW = "2025-11-25", "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": NEW,
    "io.modelcontextprotocol/clientCapabilities": {},
}
HELLO = {"protocolVersion": OLD, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


class McpClient:
    """Sends messages as a client does, or wrongly."""

    def __init__(self, mesh: Mesh, *, token: str | None = None, path: str = "/mcp") -> None:
        self.http, self.path, self.session = mesh.client(token=token).http, path, ""

    async def post(self, body: Any, **headers: str) -> httpx.Response:
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        content = body if isinstance(body, bytes) else orjson.dumps(body)
        accepted = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        return await self.http.post(self.path, content=content, headers={**accepted, **named})

    async def open(self) -> str:
        answer = await self.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HELLO})
        assert answer.status_code == 200, answer.text
        validate_server_result("initialize", OLD, answer.json()["result"])
        self.session = answer.headers["mcp-session-id"]
        return self.session

    async def old(self, method: str, params: Any = None, request_id: Any = 1, **headers: str) -> httpx.Response:
        body = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params or {}}
        sent = {"mcp_session_id": self.session, "mcp_protocol_version": OLD, **headers}
        return await self.post(body, **sent)

    async def notify(self, method: str, params: Any) -> httpx.Response:
        body = {"jsonrpc": "2.0", "method": method, "params": params}
        return await self.post(body, mcp_session_id=self.session, mcp_protocol_version=OLD)

    async def new(self, method: str, params: Any = None, meta: Any = META, **headers: str) -> httpx.Response:
        params = {**(params or {}), "_meta": meta}
        sent = {"mcp_protocol_version": NEW, "mcp_method": method}
        if name := params.get("name") or params.get("uri"):
            sent["mcp_name"] = name
        body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        return await self.post(body, **{**sent, **headers})


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def both(
    pki: Any, signer: Any, valkey_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Mesh, Mesh]]:
    folder = tmp_path_factory.mktemp("mcp")
    views = folder / "views.json"
    views.write_text(json.dumps({"views": {"core": {"namespace": "core", "title": "The core"}}}))
    chosen = {
        "TOOLMESH_REDIS_URL": valkey_url,
        "TOOLMESH_MCP_VIEWS": str(views),
        "TOOLMESH_MCP_AUTHORIZATION_SERVERS": "https://login.example",
        "TOOLMESH_MCP_PAGE_ORIGINS": "https://console.example",
    }
    for name in ("a", "b"):
        (folder / name).mkdir()
    async with run_mesh(pki, signer, folder / "a", **chosen) as a, run_mesh(pki, signer, folder / "b", **chosen) as b:
        yield a, b


@pytest_asyncio.fixture(loop_scope="module")
async def a(both: tuple[Mesh, Mesh]) -> AsyncIterator[Mesh]:
    yield both[0]
    await both[0].forget()


@pytest_asyncio.fixture(loop_scope="module")
async def b(both: tuple[Mesh, Mesh]) -> AsyncIterator[Mesh]:
    yield both[1]
    await both[1].forget()


async def test_results_have_the_form_of_their_revision(a: Mesh) -> None:
    client = McpClient(a)
    await client.open()
    calls = {
        "tools/list": {},
        "tools/call": {"name": "core__echo", "arguments": {"n": 2**64 - 1}},
        "resources/list": {},
        "resources/templates/list": {},
    }
    for method, params in calls.items():
        old, new = await client.old(method, params), await client.new(method, params)
        validate_server_result(method, OLD, orjson.loads(old.content)["result"])
        validate_server_result(method, NEW, orjson.loads(new.content)["result"])
    assert (await client.old("ping")).json() == {"jsonrpc": "2.0", "id": 1, "result": {}}
    discovered = (await client.new("server/discover")).json()["result"]
    validate_server_result("server/discover", NEW, discovered)
    assert discovered["capabilities"] == {
        "tools": {"listChanged": True},
        "resources": {},
        "logging": {},
        "extensions": {"io.modelcontextprotocol/tasks": {}},
    }
    (tool,) = (await client.old("tools/list")).json()["result"]["tools"]
    assert (tool["name"], tool["annotations"]["readOnlyHint"]) == ("core__echo", True)


async def test_a_call_reaches_the_executor_with_what_its_meta_says(a: Mesh) -> None:
    client = McpClient(a)
    await client.open()
    said = {"dev.toolmesh/idempotencyKey": "k1", "dev.toolmesh/taskId": "t1", "dev.toolmesh/timeoutMs": 5000}
    params = {"name": "core__echo", "arguments": {"n": 2**64 - 1}, "_meta": said}
    answer = await client.old("tools/call", params, request_id="native-7")
    result = orjson.loads(answer.content)["result"]
    assert (result["structuredContent"], result["isError"]) == ({"n": 2**64 - 1}, False)
    assert orjson.loads(result["content"][0]["text"]) == {"n": 2**64 - 1}
    request, call = a.peers.executor.seen[0]
    assert (request.tool, request.idempotency_key, request.task_id) == ("core.echo", "k1", "t1")
    assert request.native_call_id == "native-7"
    assert call.offered is not None
    assert 0 < call.offered <= 5.0
    for wrong in ({"dev.toolmesh/idempotencyKey": 7}, {"dev.toolmesh/timeoutMs": 1e20}, {"dev.toolmesh/priority": -1}):
        refused = (await client.old("tools/call", {**params, "_meta": wrong})).json()
        assert refused["error"]["data"]["reason"] == "INVALID_PARAMS"


async def test_a_tool_that_demands_a_key_gets_the_name_of_the_request(a: Mesh) -> None:
    client = McpClient(a)
    await client.open()
    await a.peers.registry.watched.wait()

    async def keys(request_id: Any) -> str:
        await client.old("tools/call", {"name": "core__echo"}, request_id=request_id)
        return str(a.peers.executor.seen[-1][0].idempotency_key)

    a.peers.registry.changed.set()
    while not await keys(1):
        pass
    assert await keys(1) == await keys(1)
    assert len({await keys(1), await keys("1"), await keys(2)}) == 3
    for _ in range(2):
        await client.new("tools/call", {"name": "core__echo"})
    first, second = (seen.idempotency_key for seen, _ in a.peers.executor.seen[-2:])
    assert first.startswith("mcp-")
    assert first != second


@pytest.mark.parametrize(
    ("reason", "is_result", "code", "status"),
    [
        ("execution_failed", True, 0, 200),
        ("permission_denied", True, 0, 200),
        ("rate_limited", True, 0, 200),
        ("tool_not_found", False, -32602, 200),
        ("token_revoked", False, -32001, 401),
    ],
)
async def test_failures_have_the_shape_of_their_row(
    a: Mesh, reason: str, is_result: bool, code: int, status: int
) -> None:
    client = McpClient(a)
    await client.open()
    answer = await client.old("tools/call", {"name": f"core__fail_{reason}"})
    assert answer.status_code == status
    if is_result:
        result = answer.json()["result"]
        assert result["isError"] is True
        assert result["_meta"]["dev.toolmesh/error"]["reason"] == reason.upper()
    else:
        assert answer.json()["error"]["code"] == code
        assert answer.json()["error"]["data"]["reason"] == reason.upper()
    if status == 401:
        assert "/.well-known/oauth-protected-resource/mcp" in answer.headers["www-authenticate"]


async def test_a_session_works_on_any_replica_and_for_its_owner_alone(a: Mesh, b: Mesh, signer: Any) -> None:
    here, there = McpClient(a), McpClient(b)
    there.session = await here.open()
    assert (await here.old("ping")).status_code == (await there.old("ping")).status_code == 200
    for other in (signer.mint(tenant="other"), signer.mint(sub="did:web:x:users:bob")):
        stranger = McpClient(b, token=other)
        stranger.session = here.session
        assert (await stranger.old("ping")).status_code == 404
        assert (await stranger.http.delete("/mcp", headers={"mcp-session-id": here.session})).status_code == 404
    renewed = McpClient(b, token=signer.mint(scope="tools:read"))
    renewed.session = here.session
    assert (await renewed.old("ping")).status_code == 200
    assert (await there.http.delete("/mcp", headers={"mcp-session-id": here.session})).status_code == 204
    assert (await there.old("ping")).status_code == 404
    while (await here.old("ping")).status_code != 404:
        pass
    here.session = ""
    assert (await here.old("ping", mcp_session_id="")).status_code == 400


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_notification_cancels_a_running_call(a: Mesh, b: Mesh, elsewhere: bool) -> None:
    client = McpClient(a)
    await client.open()
    running = asyncio.create_task(client.old("tools/call", {"name": "core.held"}, request_id=5))
    await a.peers.executor.reached(1)
    canceller = McpClient(b if elsewhere else a)
    # Another session's, and an id of another type: nothing happens.
    await canceller.open()
    assert (await canceller.notify("notifications/cancelled", {"requestId": 5})).status_code == 202
    canceller.session = client.session
    assert (await canceller.notify("notifications/cancelled", {"requestId": "5"})).status_code == 202
    assert not running.done()
    assert (await canceller.notify("notifications/cancelled", {"requestId": 5})).status_code == 202
    answer = await running
    assert answer.json()["error"]["data"]["reason"] == "CANCELED"
    await a.peers.executor.canceled.wait()


async def test_a_client_that_leaves_cancels_its_call(a: Mesh) -> None:
    client = McpClient(a)
    running = asyncio.create_task(client.new("tools/call", {"name": "core.held"}))
    await a.peers.executor.reached(1)
    running.cancel()
    await a.peers.executor.canceled.wait()


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, -32700),
        (b"{", 400, -32700),
        (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', 400, -32700),
        (b"[" * 10_000 + b"]" * 10_000, 413, -32600),
        (b"[]", 400, -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', 400, -32600),
        (b"1", 400, -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":7}}', 200, -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"bm8"}}', 200, -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}', 200, -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":[]}}', 200, -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"prompts/list"}', 200, -32601),
        (b'{"jsonrpc":"2.0","id":1,"method":"server/discover"}', 200, -32601),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"call-tool","arguments":{}}}', 200, 0),
    ],
)
async def test_hostile_bodies_get_typed_answers(a: Mesh, body: bytes, status: int, code: int) -> None:
    client = McpClient(a)
    await client.open()
    answer = await client.post(body, mcp_session_id=client.session, mcp_protocol_version=OLD)
    assert answer.status_code == status, answer.text
    shown = answer.json()
    assert shown["error"]["code"] == code if code else shown["result"]["isError"]
    assert (await client.old("ping")).status_code == 200


@pytest.mark.parametrize(
    ("meta", "headers", "code"),
    [
        ({}, {}, -32602),
        ({"io.modelcontextprotocol/protocolVersion": NEW}, {}, -32602),
        (META, {"mcp_protocol_version": OLD}, None),
        (META, {"mcp_protocol_version": "2027-01-01"}, -32020),
        (META, {"mcp_method": "tools/list"}, -32020),
        (META, {"mcp_name": "core__other"}, -32020),
        (META, {"mcp_name": "=?base64?Y29yZV9fZWNobw==?="}, 0),
        (META, {"mcp_name": "=?base64?Y29yZV9fZWNob?="}, -32020),
        ({**META, "io.modelcontextprotocol/clientCapabilities": 7}, {}, -32602),
    ],
)
async def test_the_envelope_of_a_stateless_request_is_checked(a: Mesh, meta: Any, headers: Any, code: Any) -> None:
    answer = await McpClient(a).new("tools/call", {"name": "core__echo"}, meta, **headers)
    if code == 0:
        assert answer.status_code == 200
        return
    assert answer.status_code == 400
    assert code is None or answer.json()["error"]["code"] == code
    assert code is None or answer.json()["id"] == 7
    assert not a.peers.executor.seen


async def test_versions_are_negotiated(a: Mesh) -> None:
    client = McpClient(a)
    for asked, answered in (("2025-06-18", "2025-06-18"), ("2024-11-05", OLD), ("2099-01-01", OLD)):
        hello = {**HELLO, "protocolVersion": asked}
        answer = await client.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
        assert answer.json()["result"]["protocolVersion"] == answered
    unknown = {**META, "io.modelcontextprotocol/protocolVersion": "v999"}
    answer = await client.new("server/discover", meta=unknown, mcp_protocol_version="v999")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32022)
    assert answer.json()["error"]["data"] == {"supported": [NEW], "requested": "v999"}
    for removed in ("initialize", "ping", "logging/setLevel", "resources/subscribe"):
        answer = await client.new(removed)
        assert (answer.status_code, answer.json()["error"]["code"], answer.json()["id"]) == (404, -32601, 7)
    for verb in ("GET", "DELETE"):
        refused = await client.http.request(verb, "/mcp", headers={"mcp-protocol-version": NEW})
        assert (refused.status_code, refused.headers["allow"]) == (405, "POST")


async def test_changes_of_tools_reach_both_kinds_of_streams(a: Mesh) -> None:
    client = McpClient(a)
    await client.open()
    await a.peers.registry.watched.wait()
    headers = {"mcp-session-id": client.session, "accept": "text/event-stream"}
    listen = {"jsonrpc": "2.0", "id": 9, "method": "subscriptions/listen"}
    listen["params"] = {"_meta": META, "notifications": {"toolsListChanged": True, "promptsListChanged": True}}
    sent = {"accept": "text/event-stream, application/json", "content-type": "application/json"}
    sent |= {"mcp-protocol-version": NEW, "mcp-method": "subscriptions/listen"}
    async with (
        client.http.stream("GET", "/mcp", headers=headers) as session_stream,
        client.http.stream("POST", "/mcp", content=orjson.dumps(listen), headers=sent) as subscription,
    ):
        session_lines, lines = session_stream.aiter_lines(), subscription.aiter_lines()
        assert (await anext(session_lines)).startswith(":")
        acknowledged = await _message(lines)
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        assert acknowledged["params"]["notifications"] == {"toolsListChanged": True}
        a.peers.registry.changed.set()
        assert (await _message(session_lines))["method"] == "notifications/tools/list_changed"
        changed = await _message(lines)
        assert changed["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": 9}


async def test_one_caller_has_a_few_streams_and_gets_their_places_back(a: Mesh) -> None:
    client = McpClient(a)
    await client.open()
    headers = {"mcp-session-id": client.session, "accept": "text/event-stream"}
    async with asyncio.timeout(60):
        for _ in range(2):
            streams = [client.http.stream("GET", "/mcp", headers=headers) for _ in range(MAX_STREAMS_OF_ONE)]
            for stream in streams:
                while (await stream.__aenter__()).status_code == 429:
                    await stream.__aexit__(None, None, None)
            assert (await client.http.get("/mcp", headers=headers)).status_code == 429
            for stream in streams:
                await stream.__aexit__(None, None, None)


async def test_pages_and_names_that_were_not_invited_are_refused(a: Mesh) -> None:
    client = McpClient(a)
    assert (await client.new("server/discover", origin="https://evil.example")).status_code == 403
    assert (await client.new("server/discover", origin="null")).status_code == 403
    assert (await client.new("server/discover", origin="https://console.example")).status_code == 200
    assert (await client.new("server/discover", accept="text/html")).status_code == 406
    assert (await client.new("server/discover", content_type="text/plain")).status_code == 415


async def test_metadata_says_where_tokens_come_from(a: Mesh) -> None:
    client = McpClient(a, token="")
    refused = await client.new("server/discover")
    assert refused.status_code == 401
    (named,) = [part for part in refused.headers["www-authenticate"].split('"') if part.startswith("https://")]
    document = (await client.http.get(named)).json()
    assert document["resource"] == f"https://127.0.0.1:{a.port}/mcp"
    assert document["authorization_servers"] == ["https://login.example"]
    view = (await client.http.get("/.well-known/oauth-protected-resource/mcp/core")).json()
    assert view["resource"].endswith("/mcp/core")
    for absent in ("/.well-known/oauth-protected-resource/rpc", "/.well-known/oauth-protected-resource/mcp/none"):
        assert (await client.http.get(absent)).status_code == 404


async def test_a_view_has_its_own_names_and_no_other_tools(a: Mesh) -> None:
    client = McpClient(a, path="/mcp/core")
    await client.open()
    (tool,) = (await client.old("tools/list")).json()["result"]["tools"]
    assert tool["name"] == "echo"
    assert a.peers.registry.seen[-1].namespace == "core"
    assert (await client.old("tools/call", {"name": "echo"})).json()["result"]["isError"] is False
    assert a.peers.executor.seen[-1][0].tool == "core.echo"
    refused = await client.old("tools/call", {"name": "acme.echo"})
    assert refused.json()["error"]["data"]["reason"] == "TOOL_NOT_FOUND"
    assert (await McpClient(a, path="/mcp/none").new("server/discover")).status_code == 404


async def _message(lines: AsyncIterator[str]) -> Any:
    async for line in lines:
        if line.startswith("data: "):
            return orjson.loads(line.removeprefix("data: "))
    raise AssertionError("the stream ended")
