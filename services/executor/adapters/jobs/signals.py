"""Wakes whatever waits for jobs or for their events, in this process at once and in the others through Redis."""

from __future__ import annotations

import asyncio

from libs.common.redis_wakeup import RedisWakeup
from libs.common.telemetry.log import Log

JOBS = "toolmesh:executor:jobs"
"""Jobs were added, changed or ended."""
EVENTS = "toolmesh:executor:job-events"
"""Jobs have new events."""


class RedisJobSignals:
    """Merges concurrent signals. Without Redis, other replicas find changes by polling."""

    def __init__(self, url: str, channel: str, log: Log) -> None:
        self._wakeup = RedisWakeup(url, channel, self._wake_here, log)
        self._next: asyncio.Future[None] | None = None

    async def start(self) -> None:
        """Start to send and receive signals."""
        await self._wakeup.start()

    async def stop(self) -> None:
        """Stop to send and receive signals."""
        await self._wakeup.stop()

    def wake(self) -> None:
        """Signal a change."""
        self._wakeup.notify()

    def next_wake(self) -> asyncio.Future[None]:
        """Return a future of the next signal, shared by all that wait for it."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        return self._next

    def _wake_here(self) -> None:
        if self._next is not None:
            self._next.set_result(None)
            self._next = None
