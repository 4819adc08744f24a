"""Copies bytes between two connections, within a traffic quota and an idle timeout."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

from services.executor.adapters.sandbox.egress.request_head import MalformedError

_CHUNK_BYTES = 64 << 10
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})\r\n")


class TrafficExceededError(Exception):
    """The traffic quota is used up."""


class TrafficQuota:
    """The bytes that one call may transfer, in both directions together."""

    def __init__(self, limit: int) -> None:
        self._limit = self._remaining = limit

    def reset(self) -> None:
        """Restore the full quota, also for open connections."""
        self._remaining = self._limit

    def spend(self, count: int) -> None:
        """Use some of the quota; raises TrafficExceededError if it is not enough."""
        self._remaining -= count
        if self._remaining < 0:
            raise TrafficExceededError


class IdleTimer:
    """The time of the last transfer on a connection, in either direction."""

    def __init__(self, idle: float) -> None:
        self.idle = idle
        self.touch()

    def touch(self) -> None:
        """Record a transfer."""
        self._last = asyncio.get_running_loop().time()

    @property
    def expires_at(self) -> float:
        """Return the loop time at which the connection is idle for too long."""
        return self._last + self.idle


class Relay:
    """Copies bytes from a reader to a writer. Raises TimeoutError when neither direction transfers anything, or when
    the receiver does not read, for longer than the idle timeout."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, quota: TrafficQuota, idle_timer: IdleTimer
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._quota = quota
        self._idle_timer = idle_timer

    async def copy_all(self) -> None:
        """Copy until the end of the stream."""
        while data := await self._read(_CHUNK_BYTES):
            await self._write(data)

    async def copy_exactly(self, count: int) -> None:
        """Copy exactly so many bytes."""
        while count:
            data = await self._read(min(count, _CHUNK_BYTES))
            if not data:
                raise MalformedError("truncated body")
            count -= len(data)
            await self._write(data)

    async def copy_chunked(self) -> None:
        """Copy a chunked body up to its end. Chunk extensions and trailers are refused."""
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
            return await self._read_active(lambda: self._reader.readuntil(b"\r\n"))
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            raise MalformedError("line") from None

    async def _read(self, limit: int) -> bytes:
        return await self._read_active(lambda: self._reader.read(limit))

    async def _read_active(self, read: Callable[[], Awaitable[bytes]]) -> bytes:
        """Read; the idle timeout is extended while the other direction transfers data."""
        while True:
            expires_at = self._idle_timer.expires_at
            try:
                async with asyncio.timeout_at(expires_at):
                    data = await read()
            except TimeoutError:
                if self._idle_timer.expires_at <= expires_at:
                    raise
                continue
            self._idle_timer.touch()
            return data

    async def _write(self, data: bytes) -> None:
        self._quota.spend(len(data))
        self._writer.write(data)
        async with asyncio.timeout(self._idle_timer.idle):
            await self._writer.drain()
