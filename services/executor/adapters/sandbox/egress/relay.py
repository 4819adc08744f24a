"""Carries bytes from one end of a connection to the other, never more than is allowed and never for longer than it moves."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

from services.executor.adapters.sandbox.egress.request_head import MalformedError

_PIECE = 64 << 10
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})\r\n")


class TrafficExceededError(Exception):
    """More was sent or received than the account holds."""


class TrafficQuota:
    """The bytes that one plan may move, in both directions together."""

    def __init__(self, most: int) -> None:
        self._most = self._left = most

    def reset(self) -> None:
        """Begin anew, also for the connections that are open."""
        self._left = self._most

    def spend(self, count: int) -> None:
        """Take bytes off; raises TrafficExceededError when there are not so many left."""
        self._left -= count
        if self._left < 0:
            raise TrafficExceededError


class IdleTimer:
    """Knows when something last moved on a connection, in whichever direction."""

    def __init__(self, idle: float) -> None:
        self.idle = idle
        self.touch()

    def touch(self) -> None:
        """Take note that something moves."""
        self._last = asyncio.get_running_loop().time()

    @property
    def expires_at(self) -> float:
        """When nothing will have moved for too long, by the clock of the loop."""
        return self._last + self.idle


class Relay:
    """Moves bytes from a reader to a writer. Raises TimeoutError when nothing moved for too long: nothing came from either end, or what
    came was not taken."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, quota: TrafficQuota, idle_timer: IdleTimer
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._quota = quota
        self._idle_timer = idle_timer

    async def copy_all(self) -> None:
        """Carry until the reader's end."""
        while piece := await self._read(_PIECE):
            await self._write(piece)

    async def copy_exactly(self, count: int) -> None:
        """Carry so many bytes, and none after them."""
        while count:
            piece = await self._read(min(count, _PIECE))
            if not piece:
                raise MalformedError("body cut short")
            count -= len(piece)
            await self._write(piece)

    async def copy_chunked(self) -> None:
        """Carry a body in chunks, up to its end and no further. Extensions and trailers are refused: nobody needs them."""
        while True:
            size = _CHUNK_SIZE.fullmatch(await self._line())
            if size is None:
                raise MalformedError("chunk size")
            await self._write(size[0])
            count = int(size[1], 16)
            await self.copy_exactly(count)
            if await self._line() != b"\r\n":
                raise MalformedError("chunk end")
            await self._write(b"\r\n")
            if not count:
                return

    async def _line(self) -> bytes:
        try:
            return await self._come(lambda: self._reader.readuntil(b"\r\n"))
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            raise MalformedError("line") from None

    async def _read(self, most: int) -> bytes:
        return await self._come(lambda: self._reader.read(most))

    async def _come(self, read: Callable[[], Awaitable[bytes]]) -> bytes:
        """Return what comes. While the other direction moves there is no hurry: who downloads has nothing to say for as long."""
        while True:
            expires_at = self._idle_timer.expires_at
            try:
                async with asyncio.timeout_at(expires_at):
                    came = await read()
            except TimeoutError:
                if self._idle_timer.expires_at <= expires_at:
                    raise
                continue
            self._idle_timer.touch()
            return came

    async def _write(self, piece: bytes) -> None:
        self._quota.spend(len(piece))
        self._writer.write(piece)
        async with asyncio.timeout(self._idle_timer.idle):
            await self._writer.drain()
