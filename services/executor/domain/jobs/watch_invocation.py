"""Follows an invocation to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from libs.common.runtime.clock import Clock
from services.executor.domain.jobs.find_invocations import FindInvocations
from services.executor.domain.jobs.job import Job, JobEvent, JobOwner
from services.executor.domain.jobs.ports import JobSignals, JobStore
from services.executor.domain.states import TERMINAL

PAGE_SIZE = 200
# Signals of other replicas may be lost, so a watch also looks by itself.
POLL_SECONDS = 2.0


class WatchInvocation:
    """Reads events from the store, woken by signals. A slow reader costs no memory: it reads later."""

    def __init__(
        self, store: JobStore, signals: JobSignals, clock: Clock, *, poll_seconds: float = POLL_SECONDS
    ) -> None:
        self._store, self._signals, self._clock = store, signals, clock
        self._find, self._poll_seconds = FindInvocations(store), poll_seconds

    async def follow(self, owner: JobOwner, invocation_id: str, after: int) -> AsyncIterator[JobEvent]:
        """Yield the events behind a sequence, the terminal one last. Raises INVOCATION_NOT_FOUND."""
        await self._find.get(owner, invocation_id)
        while True:
            woken = self._signals.next_wake()
            events = await self._store.events(invocation_id, after, PAGE_SIZE)
            for event in events:
                after = event.sequence
                yield event
                if event.state in TERMINAL:
                    return
            if not events:
                # Deleted meanwhile, or the last event was seen before.
                if (await self._find.get(owner, invocation_id)).ended:
                    return
                await wait_for_wake(woken, self._poll_seconds)

    async def wait(self, owner: JobOwner, invocation_id: str, seconds: float) -> Job:
        """Return the job once it ended, or as it is after so many seconds. Raises INVOCATION_NOT_FOUND."""
        until = self._clock.monotonic() + seconds
        while True:
            woken = self._signals.next_wake()
            job = await self._find.get(owner, invocation_id)
            left = until - self._clock.monotonic()
            if job.ended or left <= 0:
                return job
            await wait_for_wake(woken, min(left, self._poll_seconds))


async def wait_for_wake(woken: asyncio.Future[None], seconds: float) -> None:
    """Wait for a wake, or so many seconds."""
    await asyncio.wait([woken], timeout=seconds)
