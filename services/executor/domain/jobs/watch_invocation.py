"""Follows an invocation to its end."""

from __future__ import annotations

from collections.abc import AsyncIterator

from libs.common.runtime.clock import Clock
from services.executor.domain.jobs.find_invocations import FindInvocations
from services.executor.domain.jobs.job import Job, JobEvent, JobOwner
from services.executor.domain.jobs.ports import JobStore
from services.executor.domain.jobs.watched_jobs import WatchedJobs
from services.executor.domain.states import TERMINAL

PAGE_SIZE = 200


class WatchInvocation:
    """Reads events from the store. A slow reader costs no memory: it reads later."""

    def __init__(self, store: JobStore, watched: WatchedJobs, clock: Clock) -> None:
        self._store, self._watched, self._clock = store, watched, clock
        self._find = FindInvocations(store)

    async def follow(self, owner: JobOwner, invocation_id: str, after: int) -> AsyncIterator[JobEvent]:
        """Yield the events behind a sequence, the terminal one last. Raises INVOCATION_NOT_FOUND."""
        # Read before any event: those of others are not shown.
        job = await self._find.get(owner, invocation_id)
        while not (job.ended and after >= job.sequence):
            events = await self._store.events(invocation_id, after, PAGE_SIZE)
            if not events:
                await self._watched.wait_beyond(invocation_id, after)
                job = await self._find.get(owner, invocation_id)
            for event in events:
                after = event.sequence
                yield event
                if event.state in TERMINAL:
                    return

    async def wait(self, owner: JobOwner, invocation_id: str, seconds: float) -> Job:
        """Return the job once it ended, or as it is after so many seconds. Raises INVOCATION_NOT_FOUND."""
        until = self._clock.monotonic() + seconds
        while True:
            job = await self._find.get(owner, invocation_id)
            left = until - self._clock.monotonic()
            if job.ended or left <= 0:
                return job
            await self._watched.wait_beyond(invocation_id, job.sequence, left)
