"""Servers to be reached, and clients that go through a way out, for the tests of the egress proxy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager


class Origin:
    """A server that answers every connection with one HTTP response and remembers what it was sent."""

    def __init__(self) -> None:
        self.port = 0
        self.received: list[bytes] = []
        self.connections = 0
        self.seen = asyncio.Event()

    @asynccontextmanager
    async def listening(self, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[Origin]:
        """Listen for as long as the block runs."""
        server = await asyncio.start_server(self._serve, host, port)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        place = len(self.received)
        self.received.append(b"")
        while b"\r\n\r\n" not in self.received[place] and (piece := await reader.read(4096)):
            self.received[place] += piece
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello")
        await writer.drain()
        self.seen.set()
        writer.write_eof()
        while piece := await reader.read(65536):
            self.received[place] += piece
        writer.close()


class Names:
    """A resolver whose answers a test decides: one list of addresses for each question, the last one from then on."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        if not self._answers:
            raise OSError("no such name")
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


async def through(path: str, request: bytes) -> bytes:
    """Send bytes into a way out and return everything that comes back."""
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(request)
        return await asyncio.wait_for(reader.read(), 20)
    finally:
        writer.close()


def status_of(answer: bytes) -> int:
    """Return the status of an HTTP response."""
    return int(answer.split(b" ", 2)[1])


def refusal_in(answer: bytes) -> str:
    """Return why the way out said no."""
    return answer.partition(b"X-Toolmesh-Refusal: ")[2].partition(b"\r\n")[0].decode()
