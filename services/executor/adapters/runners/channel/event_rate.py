"""Limits how fast the reports of one run are read."""

from __future__ import annotations

import asyncio

from services.executor.adapters.runners.channel.event_limits import EVENT_BURST, EVENTS_PER_SECOND


class EventRate:
    """A token bucket. A tool that reports too fast waits, because its pipe is full."""

    def __init__(self, per_second: float = EVENTS_PER_SECOND, burst: int = EVENT_BURST) -> None:
        self._per_second, self._burst = per_second, burst
        self._lifted = False
        self._loop = asyncio.get_running_loop()
        self._tokens, self._refilled = float(burst), self._loop.time()

    def lift(self) -> None:
        """Limit nothing any more."""
        self._lifted = True

    async def take(self, tokens: int = 1) -> None:
        """Take tokens, and wait until the bucket is no longer overdrawn."""
        if self._lifted:
            await asyncio.sleep(0)
            return
        now = self._loop.time()
        self._tokens = min(self._burst, self._tokens + (now - self._refilled) * self._per_second) - tokens
        self._refilled = now
        if self._tokens < 0:
            await asyncio.sleep(-self._tokens / self._per_second)
