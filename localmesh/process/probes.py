"""Readiness probes over HTTP and the Redis protocol."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from localmesh.settings import LOOPBACK

PATIENCE = 1.0


async def http_answers(port: int, path: str) -> bool:
    """True if a GET is answered with 200."""
    return (await http_request(port, "GET", path))[0] == 200


async def http_request(port: int | Path, method: str, path: str) -> tuple[int, bytes]:
    """Returns the status and the body as it was sent, perhaps in chunks. Raises OSError without an answer.

    The server listens on a port or on a socket of the file system.
    """
    host = LOOPBACK if isinstance(port, Path) else f"{LOOPBACK}:{port}"
    request = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    async with _conversation(port) as (reader, writer):
        writer.write(request.encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    words = head.split(None, 2)
    return (int(words[1]) if len(words) > 1 and words[1].isdigit() else 0), body


async def valkey_answers(port: int, password: str) -> bool:
    """True if the server accepts the password and answers PING. A server that still loads its file does not."""
    async with _conversation(port) as (reader, writer):
        writer.write(f"AUTH {password}\r\nPING\r\n".encode())
        return [await reader.readline() for _ in range(2)] == [b"+OK\r\n", b"+PONG\r\n"]


@contextlib.asynccontextmanager
async def _conversation(port: int | Path) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async with asyncio.timeout(PATIENCE):
        if isinstance(port, Path):
            reader, writer = await asyncio.open_unix_connection(str(port))
        else:
            reader, writer = await asyncio.open_connection(LOOPBACK, port)
        try:
            yield reader, writer
        finally:
            writer.close()
