from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from localmesh.process.probes import http_answers, http_request, valkey_answers
from localmesh.settings import LOOPBACK

Serve = Callable[[bytes], Awaitable[int]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Starts servers that answer anything with the same bytes."""
    servers: list[asyncio.Server] = []

    async def start(answer: bytes) -> int:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readline()
            writer.write(answer)
            writer.close()

        server = await asyncio.start_server(talk, LOOPBACK, 0)
        servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    yield start
    for server in servers:
        server.close()


@pytest.mark.parametrize(
    ("answer", "ready"),
    [(b"HTTP/1.1 200 OK\r\n\r\nok", True), (b"HTTP/1.1 503 No\r\n\r\n", False), (b"nonsense", False), (b"", False)],
)
async def test_only_200_is_ready(serve: Serve, answer: bytes, ready: bool) -> None:
    port = await serve(answer)
    assert await http_answers(port, "/readyz") is ready


async def test_a_request_gives_status_and_body(serve: Serve) -> None:
    port = await serve(b"HTTP/1.1 201 Made\r\nx: y\r\n\r\nbody")
    assert await http_request(port, "POST", "/") == (201, b"body")


@pytest.mark.parametrize(
    ("answer", "ready"),
    [(b"+OK\r\n+PONG\r\n", True), (b"+OK\r\n-LOADING\r\n", False), (b"-WRONGPASS\r\n-NOAUTH\r\n", False)],
)
async def test_valkey_is_ready_when_it_lets_us_in_and_answers(serve: Serve, answer: bytes, ready: bool) -> None:
    port = await serve(answer)
    assert await valkey_answers(port, "secret") is ready


async def test_no_listener_is_an_oserror() -> None:
    with socket.socket() as free:
        free.bind((LOOPBACK, 0))
        port = free.getsockname()[1]
    with pytest.raises(OSError):
        await http_answers(port, "/")
