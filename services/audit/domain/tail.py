"""The end of the log as this process knows it, for those who wait for it to move."""

from __future__ import annotations

import asyncio


class Tail:
    """Wakes followers when this process has committed. Commits of other replicas are not seen here."""

    def __init__(self) -> None:
        self._size = 0
        self._moved = asyncio.Event()

    def reached(self, size: int) -> None:
        """Say how large the log is now."""
        if size > self._size:
            self._size = size
            self._moved.set()
            self._moved = asyncio.Event()

    async def beyond(self, size: int, timeout: float) -> None:
        """Return when the log is known to be larger than `size`, or when the time is up."""
        try:
            async with asyncio.timeout(timeout):
                while self._size <= size:
                    await self._moved.wait()
        except TimeoutError:
            return
