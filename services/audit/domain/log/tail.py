"""Wakes followers of the log when this process commits."""

from __future__ import annotations

import asyncio

from services.audit.domain.log.append_buffer import AppendBuffer
from services.audit.domain.model import Commit


class Tail:
    """Wakes followers after commits of this process and buffers them. Commits of other replicas are not seen here."""

    def __init__(self) -> None:
        self.buffer = AppendBuffer()
        self._size = 0
        self._waiters: dict[asyncio.Future[None], int] = {}
        """Waiters and the size that each wants exceeded; smaller commits do not wake them."""

    def advance(self, size: int, commit: Commit | None = None) -> None:
        """Set the size of the log after a commit, and buffer the commit."""
        if commit is not None:
            self.buffer.add(commit)
        self._size = max(self._size, size)
        for waiter, size_waited_for in self._waiters.items():
            if self._size > size_waited_for:
                _wake(waiter)

    async def wait_beyond(self, size: int, timeout: float) -> None:
        """Return when the log is known to be larger than `size`, or after the timeout."""
        if self._size > size:
            return
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._waiters[waiter] = size
        timer = loop.call_later(timeout, _wake, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            del self._waiters[waiter]


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
