"""Carries several byte streams over one connection, each with a window: a stream that is not read stops no other.

It runs at both ends, in the executor and in the pod, so it imports the standard library alone. A peer that breaks the
protocol ends the connection: nothing that it sends can make this end hold more than the windows of its streams.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

PAYLOAD_BYTES = 32 << 10
WINDOW_BYTES = 256 << 10
MAX_STREAMS = 64
_DATA, _END, _CREDIT, _OPEN, _PING = range(5)
_HEADER = struct.Struct(">BIH")
_CREDITED = struct.Struct(">I")
# The streams that a peer opens are numbered from here; those below exist from the start.
_FIRST_OPENED = 16


class ProtocolError(Exception):
    """The peer broke the protocol."""


class Stream:
    """One stream, in both directions."""

    def __init__(self, connection: Multiplexer, number: int) -> None:
        self._connection, self.number = connection, number
        self._credit, self._held = WINDOW_BYTES, 0
        self._chunks: deque[bytes] = deque()
        self._sent_end, self._received_end = False, False
        self._readable, self._writable = asyncio.Event(), asyncio.Event()

    async def write(self, content: bytes) -> None:
        """Send bytes, and wait until the peer has room for them. Raises ConnectionError."""
        at = 0
        while at < len(content):
            while not self._credit:
                self._connection.require_open()
                self._writable.clear()
                await self._writable.wait()
            size = min(len(content) - at, self._credit, PAYLOAD_BYTES)
            self._credit -= size
            await self._connection.send(_DATA, self.number, content[at : at + size])
            at += size

    async def end(self) -> None:
        """Say that nothing follows in this direction. Raises ConnectionError."""
        if not self._sent_end:
            self._sent_end = True
            await self._connection.send(_END, self.number)
            self._connection.forget(self)

    async def read(self) -> bytes:
        """Return the next bytes; none at the end of the stream or the connection."""
        while not self._chunks:
            if self._received_end:
                return b""
            self._readable.clear()
            await self._readable.wait()
        chunk = self._chunks.popleft()
        self._held -= len(chunk)
        with suppress(ConnectionError):
            await self._connection.send(_CREDIT, self.number, _CREDITED.pack(len(chunk)))
        return chunk

    @property
    def is_over(self) -> bool:
        """Return whether both directions have ended."""
        return self._sent_end and self._received_end

    def take(self, content: bytes) -> None:
        """Keep what the peer sent until it is read. Raises ProtocolError."""
        self._held += len(content)
        if self._held > WINDOW_BYTES or self._received_end:
            raise ProtocolError("a stream has more than its window")
        self._chunks.append(content)
        self._readable.set()

    def take_credit(self, size: int) -> None:
        """Note that the peer has read bytes."""
        self._credit = min(self._credit + size, WINDOW_BYTES)
        self._writable.set()

    def take_end(self) -> None:
        """Note that nothing follows, or that the connection is lost."""
        self._received_end = True
        self._readable.set()
        self._writable.set()


class Multiplexer:
    """One connection and its streams."""

    def __init__(
        self,
        receive: Callable[[], Awaitable[bytes]],
        transmit: Callable[[bytes], Awaitable[None]],
        on_open: Callable[[Stream], object] | None = None,
    ) -> None:
        """`receive` returns no bytes at the end; `transmit` waits where the peer does. `on_open` gets the streams that
        the peer opens; without it the peer may open none."""
        self._receive, self._transmit, self._on_open = receive, transmit, on_open
        self._streams: dict[int, Stream] = {}
        self._opened = _FIRST_OPENED
        self._closed = False

    def stream(self, number: int) -> Stream:
        """Return a stream that both ends know."""
        return self._streams.setdefault(number, Stream(self, number))

    async def open(self) -> Stream:
        """Open another stream. Raises ConnectionError, also where there are too many."""
        if len(self._streams) >= MAX_STREAMS:
            raise ConnectionRefusedError
        self._opened += 1
        stream = self.stream(self._opened)
        await self.send(_OPEN, stream.number)
        return stream

    async def run(self) -> None:
        """Take what the peer sends until the connection ends. Raises ProtocolError."""
        unread = bytearray()
        try:
            while received := await self._receive():
                unread += received
                while (frame := _next_frame(unread)) is not None:
                    self._take(*frame)
        finally:
            self._closed = True
            for stream in self._streams.values():
                stream.take_end()

    async def ping(self) -> None:
        """Show the peer that this end lives. Raises ConnectionError."""
        await self.send(_PING, 0)

    async def send(self, kind: int, number: int, content: bytes = b"") -> None:
        """Send a frame. Raises ConnectionError."""
        self.require_open()
        await self._transmit(_HEADER.pack(kind, number, len(content)) + content)

    def require_open(self) -> None:
        """Raise ConnectionError if the connection is lost."""
        if self._closed:
            raise ConnectionResetError

    def forget(self, stream: Stream) -> None:
        """Drop a stream that has ended in both directions."""
        if stream.is_over and stream.number >= _FIRST_OPENED:
            self._streams.pop(stream.number, None)

    def _take(self, kind: int, number: int, content: bytes) -> None:
        if kind == _PING:
            return
        if kind == _OPEN:
            if self._on_open is None or number in self._streams or len(self._streams) >= MAX_STREAMS:
                raise ProtocolError("a stream that may not be opened")
            self._on_open(self.stream(number))
            return
        stream = self._streams.get(number)
        if stream is None:
            return
        if kind == _DATA:
            stream.take(content)
        elif kind == _CREDIT and len(content) == _CREDITED.size:
            stream.take_credit(_CREDITED.unpack(content)[0])
        elif kind == _END:
            stream.take_end()
            self.forget(stream)
        else:
            raise ProtocolError("an unknown frame")


def _next_frame(unread: bytearray) -> tuple[int, int, bytes] | None:
    """Take the first complete frame out of a buffer; None if there is none."""
    if len(unread) < _HEADER.size:
        return None
    kind, number, size = _HEADER.unpack_from(unread)
    if size > PAYLOAD_BYTES:
        raise ProtocolError("a frame is too large")
    end = _HEADER.size + size
    if len(unread) < end:
        return None
    content = bytes(unread[_HEADER.size : end])
    del unread[:end]
    return kind, number, content
