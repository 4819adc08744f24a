"""Servers of each kind report changes of resources to the caller that watches them."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.rpc.stream_slots import StreamLimits
from services.executor.adapters.upstreams.mcp.watched_resources import ChangedResources, UpstreamResources
from services.executor.domain.scheduling.heavy_work import Principal
from services.executor.tests.upstreams import Upstreams, served
from services.executor.tests.waiting import until
from tests.conformance.upstream.server import FixtureServer

OWNER = Principal("acme", "ada")
WATCHED = "test://watched-resource"


@pytest.fixture
async def upstreams(tmp_path: Path) -> AsyncIterator[Upstreams]:
    made = Upstreams(tmp_path)
    yield made
    await made.close()


@pytest.fixture(scope="module")
def fixtures() -> Iterator[FixtureServer]:
    server = FixtureServer()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


def resources_of(upstreams: Upstreams, confined: int = 1) -> UpstreamResources:
    limits = StreamLimits(per_subject=confined, per_tenant=confined, per_process=confined)
    return UpstreamResources(upstreams._directory, upstreams._servers, limits)


async def next_of(changes: ChangedResources) -> list[str]:
    async with asyncio.timeout(60):
        while not (changed := await changes.next(1.0)):
            pass
    return changed


async def test_a_server_without_sessions_reports_changes(upstreams: Upstreams, fixtures: FixtureServer) -> None:
    upstreams.add_remote(fixtures.url)
    async with resources_of(upstreams).watch("fix", OWNER, [WATCHED]) as changes:
        assert await changes.next(0.01) == []
        assert fixtures.watches.update(WATCHED) == 1
        assert await next_of(changes) == [WATCHED]
        fixtures.watches.end_all()
        with pytest.raises(MeshError) as caught:
            await next_of(changes)
        assert caught.value.reason is Reason.EXTERNAL_UNAVAILABLE
    await until(lambda: fixtures.watches.update(WATCHED) == 0)


async def test_a_resource_that_the_server_does_not_watch_is_refused(
    upstreams: Upstreams, fixtures: FixtureServer
) -> None:
    upstreams.add_remote(fixtures.url)
    with pytest.raises(MeshError) as caught:
        async with resources_of(upstreams).watch("fix", OWNER, [WATCHED, "test://nowhere"]):
            pass
    assert caught.value.reason is Reason.EXTERNAL_UNAVAILABLE


class SessionServer:
    """A server with sessions: it reports what it is subscribed to on the stream of the session."""

    def __init__(self) -> None:
        self.subscribed: list[str] = []
        self.changes: asyncio.Queue[str] = asyncio.Queue()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            return
        if scope["method"] == "GET":
            await self._stream(send)
            return
        message = json.loads((await receive())["body"])
        result: dict[str, Any] = {}
        if message["method"] == "initialize":
            result = {"protocolVersion": "2025-11-25", "capabilities": {"resources": {"subscribe": True}}}
        elif message["method"] == "resources/subscribe":
            self.subscribed.append(message["params"]["uri"])
        headers = [(b"content-type", b"application/json"), (b"mcp-session-id", b"one")]
        await send({"type": "http.response.start", "status": 200 if "id" in message else 202, "headers": headers})
        body = json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "result": result}).encode()
        await send({"type": "http.response.body", "body": body if "id" in message else b""})

    async def _stream(self, send: Any) -> None:
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b": open\n\n", "more_body": True})
        while uri := await self.changes.get():
            update = {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}}
            event = b"data: " + json.dumps(update).encode() + b"\n\n"
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def test_a_server_with_sessions_reports_changes_on_its_stream(upstreams: Upstreams) -> None:
    server = SessionServer()
    async with served(server) as url:
        upstreams.add_remote(url)
        async with resources_of(upstreams).watch("fix", OWNER, ["a://x", "a://y"]) as changes:
            assert server.subscribed == ["a://x", "a://y"]
            # One below a watched resource is reported, another one is not.
            for uri in ("b://z", "a://x/below"):
                server.changes.put_nowait(uri)
            assert await next_of(changes) == ["a://x/below"]
            server.changes.put_nowait("")
            with pytest.raises(MeshError):
                await next_of(changes)


async def test_a_confined_server_reports_changes_and_its_processes_are_bounded(
    upstreams: Upstreams, tmp_path: Path
) -> None:
    upstreams.tools = upstreams.tools.with_name("watched.json")
    upstreams.offer("say")
    watched = tmp_path / "watched.txt"
    watched.write_text("first")
    upstreams.add_confined()
    resources = resources_of(upstreams)
    async with resources.watch("fix", OWNER, [str(watched)]) as changes:
        watched.write_text("second")
        assert await next_of(changes) == [str(watched)]
        with pytest.raises(MeshError) as caught:
            async with resources.watch("fix", OWNER, [str(watched)]):
                pass
        assert caught.value.reason is Reason.RATE_LIMITED
    async with resources.watch("fix", OWNER, [str(watched)]):
        pass


async def test_a_watch_ends_with_its_upstream(upstreams: Upstreams, fixtures: FixtureServer) -> None:
    upstreams.add_remote(fixtures.url)
    async with resources_of(upstreams).watch("fix", OWNER, [WATCHED]) as changes:
        upstreams.add_remote(fixtures.url + "?other")
        with pytest.raises(MeshError):
            await changes.next(0.01)
    with pytest.raises(MeshError):
        async with resources_of(upstreams).watch("unknown", OWNER, [WATCHED]):
            pass
