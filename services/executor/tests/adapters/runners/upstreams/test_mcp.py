"""Tools of MCP servers: confined ones in real sandboxes, remote ones over HTTP, well-behaved and not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer
from msgspec.structs import replace

from libs.common.errors import MeshError, Reason
from libs.common.json.canonical import digest
from services.executor.adapters.upstreams import servers
from services.executor.domain.validation_cost import INLINE_BYTES
from services.executor.tests.held_thread import offloaded
from services.executor.tests.memory_channel import MemoryChannel
from services.executor.tests.packing import work
from services.executor.tests.upstreams import Upstreams, served
from services.executor.tests.waiting import until
from tests.harness.servers.mcp_server import tool as definition


def when_begun(act: Callable[[], None]) -> Callable[[], float]:
    """Return what a run calls when its time begins; its time is generous."""

    def begin() -> float:
        act()
        return 20.0

    return begin


@pytest.fixture
async def upstreams(tmp_path: Path) -> AsyncIterator[Upstreams]:
    made = Upstreams(tmp_path)
    made.offer("say")
    yield made
    await made.close()


async def test_a_confined_server_is_called_in_a_process_of_the_caller(upstreams: Upstreams) -> None:
    upstreams.offer("say", "look", "structured", outputSchema={"type": "object"})
    upstreams.offer("say", "look")
    upstreams.add_confined(environment={"GREETING": "hi"})
    assert await upstreams.value(upstreams.tool("say"), text="hello") == {
        "content": [{"type": "text", "text": "hello"}]
    }
    seen = [
        json.loads((await upstreams.value(upstreams.tool("look"), tenant=tenant))["content"][0]["text"])
        for tenant in ("acme", "acme", "other")
    ]
    # A caller's process is kept for its next call, and no tenant meets another's.
    assert len(upstreams.pool) == 2
    assert seen[0]["environment"]["GREETING"] == "hi"
    assert not [name for name in seen[0]["environment"] if "TOOLMESH" in name or "DATABASE" in name]
    assert str(upstreams.runner.sandbox_for(upstreams.tool("say"))).startswith("process/bubblewrap mcp /")


async def test_a_large_answer_of_a_confined_server_is_parsed_beside_the_event_loop(upstreams: Upstreams) -> None:
    upstreams.add_confined()
    tool, text = upstreams.tool("say"), "x" * (INLINE_BYTES + 1)
    await upstreams.value(tool, text="warm")
    result = await offloaded(upstreams.heavy_work, upstreams.value(tool, text=text))
    assert result == {"content": [{"type": "text", "text": text}]}


async def test_structured_content_is_the_result_where_it_is_declared(upstreams: Upstreams) -> None:
    upstreams.offer("structured", outputSchema={"type": "object"})
    upstreams.add_confined()
    accepted = digest(definition("structured", outputSchema={"type": "object"}))
    assert await upstreams.value(upstreams.tool("structured", accepted), count=3) == {"count": 3}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("fail", Reason.EXECUTION_FAILED),
        ("die", Reason.TOOL_CRASHED),
        ("garbage", Reason.TOOL_CRASHED),
        ("flood", Reason.RESULT_TOO_LARGE),
    ],
)
async def test_each_failure_of_a_server_has_its_own_error(upstreams: Upstreams, name: str, reason: Reason) -> None:
    upstreams.offer("say", name)
    upstreams.add_confined()
    assert (await upstreams.failure(upstreams.tool(name))).reason is reason
    # The next call finds a server that works.
    assert await upstreams.value(upstreams.tool("say"), text="on")


@pytest.mark.parametrize("name", ["hang", "deaf"])
async def test_a_server_that_does_not_answer_is_killed_with_its_call(upstreams: Upstreams, name: str) -> None:
    upstreams.offer("say", name)
    upstreams.add_confined()
    await upstreams.value(upstreams.tool("say"), text="warm")
    begun = asyncio.Event()
    run = replace(work(text="x" * 500_000), on_begin=when_begun(begun.set))
    running = asyncio.create_task(upstreams.runner.run(upstreams.tool(name), run))
    await begun.wait()
    assert len(upstreams.pool) == 1
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    await until(lambda: len(upstreams.pool) == 0)


async def test_a_canceled_job_ends_and_progress_is_relayed(upstreams: Upstreams) -> None:
    upstreams.offer("steps", "hang")
    upstreams.add_confined()
    channel = MemoryChannel()
    await upstreams.runner.run(upstreams.tool("steps"), replace(work(), channel=channel))
    assert [report.percent for report in channel.reports] == [50.0, 100.0]

    channel = MemoryChannel()
    run = replace(work(), channel=channel, on_begin=when_begun(channel.cancel))
    with pytest.raises(MeshError) as caught:
        await upstreams.runner.run(upstreams.tool("hang"), run)
    assert caught.value.reason is Reason.INVOCATION_CANCELED


async def test_a_definition_that_changed_is_met_at_the_call(upstreams: Upstreams) -> None:
    upstreams.add_confined()
    assert await upstreams.value(upstreams.tool("say"), text="a")
    upstreams.offer("say", description="Another story altogether.")

    async def refused() -> bool:
        try:
            await upstreams.value(upstreams.tool("say"), text="b")
        except MeshError as error:
            return error.reason is Reason.TOOL_UNAVAILABLE
        return False

    async with asyncio.timeout(60):
        while not await refused():  # noqa: ASYNC110  (the server says when)
            await asyncio.sleep(0.05)
    assert upstreams.checks[-1] == "fix"


async def test_a_server_that_cannot_start_is_unavailable_and_nothing_began(upstreams: Upstreams) -> None:
    upstreams.add_confined(command=["/usr/bin/false"])
    begun: list[int] = []
    with pytest.raises(MeshError) as caught:
        await upstreams.runner.run(upstreams.tool("say"), replace(work(), on_begin=when_begun(lambda: begun.append(1))))
    assert caught.value.reason is Reason.EXTERNAL_UNAVAILABLE
    assert (begun, upstreams.checks) == ([], ["fix"])


async def test_a_tool_of_another_namespace_does_not_reach_the_upstream(upstreams: Upstreams) -> None:
    upstreams.add_confined()
    foreign = upstreams.tool("say", qualified="evil.say")
    assert upstreams.runner.sandbox_for(foreign) is None
    assert (await upstreams.failure(foreign)).reason is Reason.TOOL_UNAVAILABLE


async def test_a_preview_calls_no_server(upstreams: Upstreams) -> None:
    upstreams.add_confined(command=["/usr/bin/false"])
    ran = await upstreams.runner.run(upstreams.tool("say"), work(preview=True))
    assert ran.forecast is not None
    assert ran.forecast.impact


def serving(revision: str) -> Callable[[], Any]:
    """Return an application with the tool `greet` that serves one revision."""
    server = MCPServer("remote", version="2.0")

    @server.tool()
    def greet(name: str) -> str:
        """Greets a person by name."""
        if name == "absent":
            raise ValueError("there is no such person")
        return f"Hello {name}"

    return lambda: server.streamable_http_app(stateless_http=revision == "stateless")


async def greeting(scope: Any, receive: Any, send: Any) -> None:
    """Answers every request over HTTP."""
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"reached"})


async def test_a_confined_server_reaches_the_hosts_that_it_may_and_no_other(
    upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstreams.offer("fetch")
    fetch = upstreams.tool("fetch")
    async with served(greeting) as url:
        monkeypatch.setattr(servers, "_PORTS", (int(url.rpartition(":")[2].partition("/")[0]),))
        upstreams.add_confined(allowed_hosts=["localhost"])
        allowed, other = url.replace("127.0.0.1", "localhost"), url
        assert await upstreams.value(fetch, text=allowed) == {"content": [{"type": "text", "text": "reached"}]}
        assert (await upstreams.failure(fetch, text=other)).reason is Reason.NETWORK_POLICY_VIOLATION


@pytest.mark.parametrize("revision", ["sessions", "stateless"])
async def test_a_server_over_http_is_called(upstreams: Upstreams, revision: str) -> None:
    async with served(serving(revision)()) as url:
        tool = await upstreams.remote_tool(url, "greet")
        for name in ("Ada", "Grace"):
            assert await upstreams.value(tool, name=name) == {"result": f"Hello {name}"}
        assert (await upstreams.failure(tool, name="absent")).reason is Reason.EXECUTION_FAILED
        assert upstreams.runner.sandbox_for(tool) == "remote/http mcp 127.0.0.1"
    assert (await upstreams.failure(tool, name="Ada")).reason in (Reason.TOOL_CRASHED, Reason.EXTERNAL_UNAVAILABLE)


async def test_a_large_answer_over_http_is_parsed_beside_the_event_loop(upstreams: Upstreams) -> None:
    async with served(serving("stateless")()) as url:
        tool, name = await upstreams.remote_tool(url, "greet"), "x" * (INLINE_BYTES + 1)
        await upstreams.value(tool, name="warm")
        result = await offloaded(upstreams.heavy_work, upstreams.value(tool, name=name))
        assert result == {"result": f"Hello {name}"}


class ModernOnly:
    """Refuses the handshake, as a server of revision 2026-07-28 without older ones does."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self.methods: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        message = await receive()
        body = json.loads(message["body"])
        self.methods.append(body["method"])
        if body["method"] == "initialize":
            error = {"code": -32022, "message": "unsupported", "data": {"supported": ["2026-07-28"]}}
            payload = json.dumps({"jsonrpc": "2.0", "id": body["id"], "error": error}).encode()
            await send(
                {"type": "http.response.start", "status": 400, "headers": [(b"content-type", b"application/json")]}
            )
            await send({"type": "http.response.body", "body": payload})
            return

        first = [message]

        async def replayed() -> Any:
            return first.pop() if first else await receive()

        await self._application(scope, replayed, send)


async def test_a_server_of_the_newest_revision_is_called_without_a_handshake(upstreams: Upstreams) -> None:
    application = ModernOnly(serving("sessions")())
    async with served(application) as url:
        tool = await upstreams.remote_tool(url, "greet")
        assert await upstreams.value(tool, name="Ada") == {"result": "Hello Ada"}
    assert "server/discover" in application.methods
    assert "notifications/initialized" not in application.methods


async def test_a_private_address_is_not_reached(tmp_path: Path) -> None:
    async with served(serving("sessions")()) as url:
        closed = Upstreams(tmp_path, internal=())
        closed.add_remote(url)
        error = await closed.failure(closed.tool("greet", "sha256:0"), name="Ada")
        await closed.close()
    assert error.reason is Reason.EXTERNAL_UNAVAILABLE
