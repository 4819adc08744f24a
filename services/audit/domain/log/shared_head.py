"""Reads the head of the log once for all watches of a process."""

from __future__ import annotations

import asyncio

from services.audit.domain.model import TreeHead
from services.audit.domain.ports import LogReader

MIN_INTERVAL_SECONDS = 0.02


class SharedHead:
    """Joins concurrent reads of the head. Every reader gets a head that was read after its request, and reads begin at
    least `min_interval` apart: the cost for the database does not grow with the number of watches or of commits."""

    def __init__(self, log: LogReader, *, min_interval: float = MIN_INTERVAL_SECONDS) -> None:
        self._log, self._min_interval = log, min_interval
        self._next: asyncio.Task[TreeHead] | None = None
        """The read that has not begun; later requests join it."""
        self._current: asyncio.Task[TreeHead] | None = None

    async def read(self) -> TreeHead:
        """Return the head as of now or later. Raises what the log raises."""
        if self._next is None:
            self._next = asyncio.create_task(self._read_after(self._current), name="read-head")
            # Retrieves the error also if every reader was canceled meanwhile.
            self._next.add_done_callback(lambda read: read.cancelled() or read.exception())
        # A canceled reader must not cancel the read of the others.
        return await asyncio.shield(self._next)

    async def _read_after(self, earlier: asyncio.Task[TreeHead] | None) -> TreeHead:
        if earlier is not None:
            await asyncio.wait([earlier])
        await asyncio.sleep(self._min_interval)
        self._current, self._next = self._next, None
        return await self._log.head()
