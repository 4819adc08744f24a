"""Polls a source, for all waiters of a process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from prometheus_client import Counter

from libs.common.telemetry.log import Log


class Poller:
    """Polls when woken and every `interval` seconds, so that a lost wakeup only delays.

    Waiters are notified after each successful poll. A failed poll is not reported to them.
    """

    def __init__(
        self,
        name: str,
        poll: Callable[[], Awaitable[None]],
        log: Log,
        outcomes: Counter,
        *,
        interval: float,
        within: float,
    ) -> None:
        """`outcomes` counts polls as `done` and `failed`; a poll that takes longer than `within` seconds fails."""
        self._name, self._poll, self._log, self._outcomes = name, poll, log, outcomes
        self._interval, self._within = interval, within
        self._woken, self._polled = asyncio.Event(), asyncio.Event()
        self._failing = False
        self._task: asyncio.Task[None] | None = None
        self.ended = False

    async def start(self) -> None:
        """Poll once, then go on in the background."""
        await self._once()
        self._task = asyncio.create_task(self._run(), name=self._name)

    async def stop(self) -> None:
        """Stop polling."""
        self.end()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def wake(self) -> None:
        """Poll soon."""
        self._woken.set()

    def end(self) -> None:
        """Release all waiters, now and from now on."""
        self.ended = True
        self._notify()

    async def next_poll(self) -> None:
        """Return after the next poll, or at once when there will be none."""
        if not self.ended:
            await self._polled.wait()

    async def _run(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._interval):
                    await self._woken.wait()
            self._woken.clear()
            try:
                async with asyncio.timeout(self._within):
                    await self._once()
            except Exception as error:
                # The loop must survive: a dead poller would leave all waiters waiting.
                self._report(error)
            else:
                self._outcomes.labels("done").inc()
                self._failing = False

    async def _once(self) -> None:
        await self._poll()
        self._notify()

    def _notify(self) -> None:
        # Current waiters hold the old event; later ones wait for the next poll.
        polled, self._polled = self._polled, asyncio.Event()
        polled.set()

    def _report(self, error: Exception) -> None:
        self._outcomes.labels("failed").inc()
        if not self._failing:
            self._failing = True
            self._log.error("poll failed", poller=self._name, cause=error)
