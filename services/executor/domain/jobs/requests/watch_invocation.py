"""Follows an invocation to its end."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from libs.common.runtime.clock import Clock
from services.executor.domain.jobs.event import JobEvent
from services.executor.domain.jobs.job import Job, JobOwner
from services.executor.domain.jobs.ports import JobEvents
from services.executor.domain.jobs.requests.find_invocations import FindInvocations
from services.executor.domain.jobs.requests.watched_jobs import WatchedJobs
from services.executor.domain.states import TERMINAL

PAGE_SIZE = 200
HEARTBEAT_SECONDS = 10.0


class WatchInvocation:
    """Reads events from the store. A slow reader costs no memory but one page: it reads later."""

    def __init__(
        self,
        find: FindInvocations,
        events: JobEvents,
        watched: WatchedJobs,
        clock: Clock,
        *,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
    ) -> None:
        self._find, self._events, self._watched, self._clock = find, events, watched, clock
        self._heartbeat_seconds = heartbeat_seconds

    async def follow(self, owner: JobOwner, invocation_id: str, after: int) -> AsyncGenerator[JobEvent | None]:
        """Yield the events behind a sequence, the terminal one last; None when nothing happened for some seconds.

        Raises INVOCATION_NOT_FOUND.
        """
        # Read before any event: those of others are not shown.
        job = await self._find.get(owner, invocation_id)
        while True:
            # First what it missed, in pages of its own; then together with all readers.
            while events := await self._events.events(invocation_id, after, PAGE_SIZE):
                for event in events:
                    yield event
                    if event.state in TERMINAL:
                        return
                after = events[-1].sequence
            while events := await self._watched.next_events(invocation_id, after, self._heartbeat_seconds) or ():
                for event in events:
                    yield event
                    if event.state in TERMINAL:
                        return
                after = events[-1].sequence
            if job.ended and after >= job.sequence:
                return
            job = await self._find.get(owner, invocation_id)
            yield None

    async def wait(self, owner: JobOwner, invocation_id: str, seconds: float) -> Job:
        """Return the job once it ended, or as it is after so many seconds. Raises INVOCATION_NOT_FOUND."""
        until = self._clock.monotonic() + seconds
        while True:
            job = await self._find.get(owner, invocation_id)
            left = until - self._clock.monotonic()
            if job.ended or left <= 0:
                return job
            await self._watched.wait_ended(invocation_id, left)
