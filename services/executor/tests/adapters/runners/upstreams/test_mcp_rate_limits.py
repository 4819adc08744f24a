"""MCP servers over HTTP that limit the rate: what they say holds back the calls of the tenant that it was said to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer
from msgspec.structs import replace

from libs.common.errors import MeshError, Reason
from services.executor.domain.tool import Tool
from services.executor.tests.packing import work
from services.executor.tests.upstreams import Upstreams, served


class Service:
    """A server whose answers the test changes, and that counts the requests that reach it."""

    def __init__(self) -> None:
        server = MCPServer("remote", version="2.0")

        @server.tool()
        async def greet(name: str) -> str:
            """Greets a person by name."""
            return f"Hello {name}"

        self._application = server.streamable_http_app(stateless_http=True)
        self.status, self.headers, self.reached = 200, list[tuple[bytes, bytes]](), 0

    def limit(self, status: int, header: str) -> None:
        name, _, value = header.partition(": ")
        self.status, self.headers = status, [(name.encode(), value.encode())]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        self.reached += 1
        if self.status == 429:
            headers = [*self.headers, (b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": 429, "headers": headers})
            refusal = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"slow down"}}'
            await send({"type": "http.response.body", "body": refusal})
            return

        async def answer(event: Any) -> None:
            if event["type"] == "http.response.start":
                event = {**event, "headers": [*event["headers"], *self.headers]}
            await send(event)

        await self._application(scope, receive, answer)


@pytest.fixture
async def upstreams(tmp_path: Path) -> AsyncIterator[Upstreams]:
    made = Upstreams(tmp_path)
    yield made
    await made.close()


async def failure(upstreams: Upstreams, tool: Tool, tenant: str) -> MeshError:
    with pytest.raises(MeshError) as caught:
        await call(upstreams, tool, tenant)
    return caught.value


async def call(upstreams: Upstreams, tool: Tool, tenant: str) -> None:
    await upstreams.runner.run(tool, replace(work(name="Ada"), tenant=tenant))


@pytest.mark.parametrize(
    ("status", "header", "seconds"),
    [
        (429, "retry-after: 40", 40.0),
        (429, 'ratelimit: "default";r=0;t=50', 50.0),
        (200, 'ratelimit: "default";r=0;t=60', 60.0),
    ],
)
async def test_the_tenant_waits_and_others_do_not(
    upstreams: Upstreams, status: int, header: str, seconds: float
) -> None:
    service = Service()
    async with served(service) as url:
        tool = await upstreams.remote_tool(url, "greet")
        await call(upstreams, tool, "loud")
        service.limit(status, header)
        if status == 429:
            refused = await failure(upstreams, tool, "loud")
            assert (refused.reason, refused.metadata["effect"]) == (Reason.EXTERNAL_RATE_LIMITED, "none")
            assert refused.retry_after == seconds
        else:
            await call(upstreams, tool, "loud")
        reached = service.reached
        held = await failure(upstreams, tool, "loud")
        assert (held.reason, held.retry_after) == (Reason.EXTERNAL_RATE_LIMITED, seconds)
        assert service.reached == reached
        service.status, service.headers = 200, []
        await call(upstreams, tool, "quiet")


@pytest.mark.parametrize("status", [429, 200])
async def test_a_limit_that_is_met_before_the_call_holds_it_back(upstreams: Upstreams, status: int) -> None:
    """A caller without a session lists the tools first."""
    service = Service()
    async with served(service) as url:
        tool = await upstreams.remote_tool(url, "greet")
        service.limit(status, "retry-after: 30" if status == 429 else 'ratelimit: "default";r=0;t=30')
        for _ in range(2):
            refused = await failure(upstreams, tool, "acme")
            assert (refused.reason, refused.retry_after) == (Reason.EXTERNAL_RATE_LIMITED, 30.0)
    # A server that limits the rate is not checked for being away.
    assert upstreams.checks == []


async def test_a_limit_without_a_time_holds_nothing_back(upstreams: Upstreams) -> None:
    service = Service()
    async with served(service) as url:
        tool = await upstreams.remote_tool(url, "greet")
        await call(upstreams, tool, "acme")
        service.limit(429, "retry-after: soon")
        reached = service.reached
        for _ in range(2):
            assert (await failure(upstreams, tool, "acme")).reason is Reason.EXTERNAL_RATE_LIMITED
        assert service.reached == reached + 2
