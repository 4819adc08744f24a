"""The official MCP client against the whole mesh, in both revisions, and input that no client sends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult

from tests.harness.mesh import Mesh, cli
from tests.harness.stores import wait_until
from tests.scenarios.calls.test_deadlines import frozen, in_flight

OLD, NEW = "legacy", "2026-07-28"
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


@asynccontextmanager
async def client_of(mesh: Mesh, token: str, mode: Any, **options: Any) -> AsyncIterator[Client]:
    headers = {"authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False) as http:
        transport = streamable_http_client(f"{mesh.url}/mcp", http_client=http)
        async with Client(transport, mode=mode, **options) as client:
            yield client


def send(mesh: Mesh, token: str, body: Any, **headers: str) -> httpx.Response:
    sent = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    if token:
        sent["authorization"] = f"Bearer {token}"
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx.post(f"{mesh.url}/mcp", content=content, headers=sent, timeout=60, trust_env=False)


def end(mesh: Mesh, token: str, session: str) -> httpx.Response:
    headers = {"authorization": f"Bearer {token}", "mcp-session-id": session}
    return httpx.delete(f"{mesh.url}/mcp", headers=headers, trust_env=False)


def running(mesh: Mesh) -> bool:
    return in_flight(mesh, "gateway", "mcp/tools/call") > 0


def request(method: str, params: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}


@pytest.mark.parametrize("mode", [OLD, NEW])
async def test_the_official_client_lists_calls_and_reads_failures(mesh: Mesh, mode: str) -> None:
    token = mesh.token(tools="core.echo,core.clock_now")
    async with client_of(mesh, token, mode) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        # Only what the token names is there.
        assert listed.keys() == {"core__echo", "core__clock_now"}
        hints = listed["core__echo"].annotations
        assert hints is not None
        assert (hints.read_only_hint, hints.destructive_hint) == (True, False)
        answer = await client.call_tool("core__echo", {"text": "hi"})
        assert (answer.structured_content, answer.is_error) == ({"text": "hi"}, False)
        wrong = await client.call_tool("core__echo", {"other": 1})
        assert wrong.is_error
        assert wrong.meta is not None
        assert wrong.meta["dev.toolmesh/error"]["reason"] == "ARGUMENTS_INVALID"
        forbidden = await client.call_tool("core__arithmetic", {"expression": "1+1"})
        assert forbidden.meta is not None
        assert forbidden.meta["dev.toolmesh/error"]["reason"] == "TOOL_NOT_IN_TOKEN"
        found = await client.call_tool("search-tools", {"query": "time of day"})
        assert found.structured_content is not None
        assert {tool["name"] for tool in found.structured_content["tools"]} <= listed.keys()
        described = await client.call_tool("describe-tools", {"names": ["core__echo", "core__arithmetic"]})
        assert described.structured_content is not None
        assert [tool["name"] for tool in described.structured_content["tools"]] == ["core__echo"]
        assert described.structured_content["unknown"] == ["core__arithmetic"]
        inner = await client.call_tool("call-tool", {"name": "core__echo", "arguments": {"text": "in"}})
        assert inner.structured_content == {"text": "in"}
    async with client_of(mesh, mesh.token(), mode) as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("core__nothing", {})
        assert caught.value.error.code == -32602


@pytest.mark.parametrize("mode", [OLD, NEW])
async def test_a_host_that_starts_processes_reaches_the_mesh(mesh: Mesh, mode: Any) -> None:
    config = json.loads(cli("mcp", "config", "claude", state=mesh.state).stdout)["mcpServers"]["toolmesh"]
    server = StdioServerParameters(command=config["command"], args=config["args"])
    async with Client(stdio_client(server), mode=mode) as client:
        assert "core__echo" in {tool.name for tool in (await client.list_tools()).tools}
        assert (await client.call_tool("core__echo", {"text": "ü"})).structured_content == {"text": "ü"}


@pytest.mark.parametrize("mode", [OLD, NEW])
async def test_a_client_that_gives_up_stops_the_call(mesh: Mesh, mode: str) -> None:
    async with client_of(mesh, mesh.token(), mode) as client:
        with frozen(mesh, "executor"):
            call = asyncio.create_task(client.call_tool("core__echo", {"text": "never"}))
            await asyncio.to_thread(wait_until, lambda: running(mesh), "a call under way", 60)
            call.cancel()
            await asyncio.to_thread(wait_until, lambda: not running(mesh), "the end of the call", 60)
        assert await echoed(client, "again") == {"text": "again"}


@pytest.fixture(scope="module")
def jobs(mesh: Mesh) -> None:
    """Register tools that run as jobs."""
    cli("tools", "register", "examples/packs/jobkit/manifests", state=mesh.state)


@pytest.mark.parametrize("mode", [OLD, NEW])
@pytest.mark.usefixtures("jobs")
async def test_the_official_client_hears_of_progress_answers_questions_and_cancels(mesh: Mesh, mode: Any) -> None:
    token, reported = mesh.token(), asyncio.Event()
    reports: list[tuple[float, float | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        reports.append((progress, total))
        reported.set()

    async def answer(context: Any, params: Any) -> ElicitResult:
        fields = params.requested_schema["properties"]
        chosen: Any = 2 if fields["answer"]["type"] == "integer" else "Oslo"
        return ElicitResult(action="accept", content={"answer": chosen})

    async with client_of(mesh, token, mode, elicitation_callback=answer) as client:
        counted = await client.call_tool("samples__count_slowly", {"count": 3}, progress_callback=on_progress)
        assert not counted.is_error, counted
        assert reports
        assert reports == sorted(set(reports))
        planned = await client.call_tool("samples__plan_trip", {})
        assert planned.structured_content is not None, planned
        assert (planned.structured_content["city"], len(planned.structured_content["plan"])) == ("Oslo", 2)
        reported.clear()
        call = asyncio.create_task(
            client.call_tool("samples__count_slowly", {"count": 10_000}, progress_callback=on_progress)
        )
        async with asyncio.timeout(120):
            await reported.wait()
        call.cancel()
        await asyncio.to_thread(wait_until, lambda: not counting(mesh, token), "the end of the invocation", 120)


def counting(mesh: Mesh, token: str) -> bool:
    """Return whether a job of the caller has not ended."""
    headers = {"authorization": f"Bearer {token}"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "invocations.list", "params": {"tool": "samples.count_slowly"}}
    answer = httpx.post(f"{mesh.url}/rpc", json=body, headers=headers, timeout=60, trust_env=False).json()
    ended = ("SUCCEEDED", "FAILED", "CANCELED", "TIMED_OUT")
    return any(not job["state"].upper().endswith(ended) for job in answer["result"]["invocations"])


async def echoed(client: Any, text: str) -> Any:
    """Return the answer of echo, once what was stopped or started again takes calls."""
    async with asyncio.timeout(120):
        while True:
            try:
                answer = await client.call_tool("core__echo", {"text": text})
            except MCPError:
                answer = None
            if answer is not None and not answer.is_error:
                return answer.structured_content
            await asyncio.sleep(0.2)


async def test_a_session_outlives_the_gateway_and_serves_its_owner_alone(mesh: Mesh) -> None:
    token = mesh.token()
    async with client_of(mesh, token, OLD) as client:
        assert (await client.call_tool("core__echo", {"text": "a"})).structured_content == {"text": "a"}
        opened = send(mesh, token, request("initialize", HELLO))
        session = opened.headers["mcp-session-id"]
        await asyncio.to_thread(cli, "restart", "gateway", state=mesh.state)
        assert await echoed(client, "b") == {"text": "b"}
    assert send(mesh, token, request("ping"), mcp_session_id=session).json()["result"] == {}
    for other in (mesh.token(tenant="other"), mesh.token(sub="did:web:toolmesh.local:users:bob")):
        assert send(mesh, other, request("ping"), mcp_session_id=session).status_code == 404
    # The same caller with another token.
    assert send(mesh, mesh.token(tools="core.echo"), request("ping"), mcp_session_id=session).status_code == 200
    assert end(mesh, token, session).status_code == 204
    assert send(mesh, token, request("ping"), mcp_session_id=session).status_code == 404


async def test_a_client_hears_that_tools_changed(mesh: Mesh) -> None:
    token = mesh.token()
    session = send(mesh, token, request("initialize", HELLO)).headers["mcp-session-id"]
    headers = {"authorization": f"Bearer {token}", "mcp-session-id": session, "accept": "text/event-stream"}
    async with (
        httpx.AsyncClient(timeout=60, trust_env=False) as http,
        http.stream("GET", f"{mesh.url}/mcp", headers=headers) as stream,
    ):
        lines = stream.aiter_lines()
        assert (await anext(lines)).startswith(":")
        await asyncio.to_thread(cli, "tools", "disable", "core.clock_now", "--reason", "test", state=mesh.state)
        try:
            message = ""
            while not message.startswith("data: "):
                message = await anext(lines)
            assert json.loads(message.removeprefix("data: "))["method"] == "notifications/tools/list_changed"
            listed = send(mesh, token, request("tools/list"), mcp_session_id=session).json()["result"]["tools"]
            assert "core__clock_now" not in {tool["name"] for tool in listed}
        finally:
            await asyncio.to_thread(cli, "tools", "enable", "core.clock_now", state=mesh.state)


def test_who_has_no_token_learns_where_tokens_come_from(mesh: Mesh) -> None:
    for token in ("", "abc", mesh.token()[:-8] + "AAAAAAAA"):
        refused = send(mesh, token, request("initialize", HELLO))
        assert refused.status_code == 401
        (named,) = [part for part in refused.headers["www-authenticate"].split('"') if part.startswith("http")]
        assert named == f"{mesh.url}/.well-known/oauth-protected-resource/mcp"
        assert httpx.get(named, trust_env=False).json()["resource"] == f"{mesh.url}/mcp"
    assert httpx.get(f"{mesh.url}/mcp", trust_env=False).status_code == 401
    assert send(mesh, mesh.token(audience="elsewhere"), request("initialize", HELLO)).status_code == 401


def test_hostile_input_is_bounded_by_the_edge_and_answered(mesh: Mesh) -> None:
    token = mesh.token()
    assert send(mesh, token, b" " * (5 * 1024 * 1024)).status_code == 413
    assert send(mesh, token, b"[" * 200_000).status_code in (400, 413)
    assert send(mesh, token, json.dumps([request("ping")] * 1000).encode()).status_code == 400
    flood = {f"x-flood-{number}": "x" for number in range(200)}
    assert send(mesh, token, request("ping"), **flood).status_code == 431
    assert send(mesh, token, request("ping"), x_flood="x" * 100_000).status_code == 431
    assert send(mesh, token, request("ping"), mcp_session_id="x" * 5000).status_code == 400
    assert send(mesh, token, request("initialize", HELLO), host="evil.example").status_code == 403
    assert send(mesh, token, request("initialize", HELLO), origin="https://evil.example").status_code == 403
    assert httpx.put(f"{mesh.url}/mcp", headers={"authorization": f"Bearer {token}"}).status_code == 405
    assert send(mesh, token, request("initialize", HELLO)).status_code == 200
