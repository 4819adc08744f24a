"""A WebSocket service for tests, which does what the method of a message says."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from toolmesh.registry.v1 import upstream_pb2
from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

OPERATIONS: list[dict[str, Any]] = [
    {"name": "sum", "input": {"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}, "read_only": True},
    {"name": "feed", "input": {"properties": {"count": {"type": "integer"}}}, "stream": True, "end": {"end": True}},
    *(
        {"name": name, "input": {"properties": {}}}
        for name in ("refuse", "hang", "garbage", "break_off", "flood", "leak")
    ),
]


def described() -> list[dict[str, Any]]:
    """Return the operations as a file of `toolmesh connect websocket` describes them."""
    common = {
        "arguments_member": "params",
        "id_member": "id",
        "error_member": "error",
        "description": "For tests only.",
    }
    return [common | each | {"constants": {"jsonrpc": "2.0", "method": each["name"]}} for each in OPERATIONS]


def operations_of(documents: list[dict[str, Any]]) -> list[upstream_pb2.WebSocketOperation]:
    """Return described operations as the contract has them."""
    fields = {"input": "input_schema", "output": "output_schema"}

    def one(document: dict[str, Any]) -> upstream_pb2.WebSocketOperation:
        stated: dict[str, Any] = {
            fields.get(name, name): json.dumps(value).encode() if isinstance(value, dict) else value
            for name, value in document.items()
        }
        return upstream_pb2.WebSocketOperation(**stated)

    return [one(document) for document in documents]


@dataclass
class WebSocketServer:
    """A running service."""

    url: str = ""
    status: int = 0
    """The status that opening requests get instead of a connection."""
    headers: dict[str, str] = field(default_factory=dict)
    seen: list[dict[str, Any]] = field(default_factory=list)
    authorization: list[str] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    async def refuse(self, connection: ServerConnection, request: Request) -> Response | None:
        self.authorization.append(request.headers.get("authorization", ""))
        return Response(self.status, "No", Headers(self.headers)) if self.status else None

    async def answer(self, connection: ServerConnection) -> None:
        """Greet, and answer every message."""
        await connection.send(json.dumps({"hello": "there"}))
        try:
            # A call that has its answer leaves without a closing handshake.
            async for text in _messages(connection):
                message = json.loads(text)
                self.seen.append(message)
                self.asked.set()
                await getattr(self, f"_{message['method']}")(connection, message)
        finally:
            self.closed.set()

    async def _sum(self, connection: ServerConnection, message: dict[str, Any]) -> None:
        await connection.send(json.dumps({"id": "of another call", "result": -1}))
        total = sum(message["params"].values())
        await connection.send(json.dumps({"id": message["id"], "result": total}))

    async def _feed(self, connection: ServerConnection, message: dict[str, Any]) -> None:
        for number in range(message["params"]["count"]):
            await connection.send(json.dumps({"id": message["id"], "number": number}))
        await connection.send(json.dumps({"id": message["id"], "end": True}))

    async def _refuse(self, connection: ServerConnection, message: dict[str, Any]) -> None:
        await connection.send(json.dumps({"id": message["id"], "error": {"message": "not today"}}))

    async def _hang(self, connection: ServerConnection, message: dict[str, Any]) -> None:
        await connection.wait_closed()

    async def _garbage(self, connection: ServerConnection, message: dict[str, Any]) -> None:
        await connection.send("{]")

    async def _break_off(self, connection: ServerConnection, message: dict[str, Any]) -> None:
        connection.transport.abort()

    async def _flood(self, connection: ServerConnection, message: dict[str, Any]) -> None:
        with suppress(ConnectionClosed):
            while True:
                await connection.send(json.dumps({"id": "of another call", "filling": "x" * 60_000}))

    async def _leak(self, connection: ServerConnection, message: dict[str, Any]) -> None:
        await connection.send(json.dumps({"id": message["id"], "result": self.authorization[-1]}))


async def _messages(connection: ServerConnection) -> AsyncIterator[str | bytes]:
    with suppress(ConnectionClosed):
        while True:
            yield await connection.recv()


@asynccontextmanager
async def websocket_server() -> AsyncIterator[WebSocketServer]:
    """Serve on a free port of this machine."""
    state = WebSocketServer()
    async with serve(state.answer, "127.0.0.1", 0, process_request=state.refuse) as server:
        state.url = f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/v1"
        yield state


@contextmanager
def running_websocket_server() -> Iterator[WebSocketServer]:
    """Serve beside the test, in a thread of its own."""
    loop, started, found = asyncio.new_event_loop(), threading.Event(), list[WebSocketServer]()

    async def run() -> None:
        async with websocket_server() as server:
            found.append(server)
            started.set()
            await ended.wait()

    ended = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(run(),), daemon=True)
    thread.start()
    assert started.wait(timeout=60)
    yield found[0]
    loop.call_soon_threadsafe(ended.set)
    thread.join()
    loop.close()
