"""The streams between the executor and the agent in a pod, and the JSON messages of the first one."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

from .multiplexer import Stream

CONTROL, STDIN, STDOUT, EVENTS, INPUT = range(5)
MAX_MESSAGE_BYTES = 8 << 20
CHUNK_BYTES = 64 << 10


class Messages:
    """JSON objects over one stream, a line each."""

    def __init__(self, stream: Stream) -> None:
        self._stream, self._unread = stream, bytearray()

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message. Raises ConnectionError."""
        await self._stream.write(json.dumps(message).encode() + b"\n")

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message; None at the end, and for what is no message."""
        while b"\n" not in self._unread:
            chunk = await self._stream.read()
            if not chunk or len(self._unread) > MAX_MESSAGE_BYTES:
                return None
            self._unread += chunk
        line, _, rest = bytes(self._unread).partition(b"\n")
        self._unread = bytearray(rest)
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return None
        return message if isinstance(message, dict) else None


async def copy_to_stream(reader: asyncio.StreamReader, stream: Stream) -> None:
    """Send what can be read, and its end. Ends with the connection."""
    try:
        while chunk := await reader.read(CHUNK_BYTES):
            await stream.write(chunk)
        await stream.end()
    except ConnectionError:
        return


async def copy_from_stream(stream: Stream, writer: asyncio.StreamWriter) -> None:
    """Write what the peer sends until its end, and close the writer. A reader that left is reported to the peer."""
    try:
        while chunk := await stream.read():
            writer.write(chunk)
            await writer.drain()
    except ConnectionError:
        with suppress(ConnectionError):
            await stream.end()
    finally:
        writer.close()
