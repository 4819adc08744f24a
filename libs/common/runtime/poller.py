"""Looking at a log again and again, for everyone in a process who waits for it to grow."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from prometheus_client import Counter

from libs.common.telemetry.log import Log


class Poller:
    """Looks when woken and every `interval` seconds anyway, so that a lost call to wake up only delays. Whoever waits hears of
    each look that was taken; one that fails is not told, so silence means that nothing is known."""

    def __init__(
        self,
        name: str,
        look: Callable[[], Awaitable[None]],
        log: Log,
        outcomes: Counter,
        *,
        interval: float,
        within: float,
    ) -> None:
        """`outcomes` counts the looks as `done` and `failed`; a look that takes longer than `within` seconds has failed."""
        self._name, self._look, self._log, self._outcomes = name, look, log, outcomes
        self._interval, self._within = interval, within
        self._woken, self._looked = asyncio.Event(), asyncio.Event()
        self._failing = False
        self._task: asyncio.Task[None] | None = None
        self.ended = False

    async def start(self) -> None:
        """Look once, then go on looking in the background."""
        await self._once()
        self._task = asyncio.create_task(self._run(), name=self._name)

    async def stop(self) -> None:
        """Stop looking."""
        self.end()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def wake(self) -> None:
        """Look soon."""
        self._woken.set()

    def end(self) -> None:
        """Let go of everyone who waits, now and from now on."""
        self.ended = True
        self._tell()

    async def next_poll(self) -> None:
        """Return after the next look, or when there will be none."""
        if not self.ended:
            await self._looked.wait()

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
                # Whatever it was, the next look may succeed; a lookout that died would leave everyone waiting forever.
                self._report(error)
            else:
                self._outcomes.labels("done").inc()
                self._failing = False

    async def _once(self) -> None:
        await self._look()
        self._tell()

    def _tell(self) -> None:
        # Whoever waits now holds the old event; whoever comes next waits for the next look.
        told, self._looked = self._looked, asyncio.Event()
        told.set()

    def _report(self, error: Exception) -> None:
        self._outcomes.labels("failed").inc()
        if not self._failing:
            self._failing = True
            self._log.error("cannot be looked at", what=self._name, cause=error)
