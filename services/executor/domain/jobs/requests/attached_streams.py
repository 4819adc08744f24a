"""Notes which jobs have streams, for those that are cancelled when they have none."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from services.executor.domain.jobs.job import Job
from services.executor.domain.jobs.ports import JobAttachments, JobSignals

RENEW_SECONDS = 5.0


class AttachedStreams:
    """The streams of this process. The store forgets them some time after this process stopped renewing them."""

    def __init__(self, attachments: JobAttachments, signals: JobSignals) -> None:
        self._attachments, self._signals = attachments, signals
        self._streams: Counter[str] = Counter()

    @asynccontextmanager
    async def attach(self, job: Job) -> AsyncIterator[None]:
        """Note that a stream is attached to a job while it is open."""
        if not job.cancel_when_detached or job.ended:
            yield
            return
        self._streams[job.invocation_id] += 1
        try:
            await self._attachments.renew_attachments([job.invocation_id])
            yield
        finally:
            self._streams[job.invocation_id] -= 1
            if not self._streams[job.invocation_id]:
                del self._streams[job.invocation_id]

    async def renew(self) -> None:
        """Renew all streams of this process, and cancel the jobs whose last stream is gone for some time."""
        if self._streams:
            await self._attachments.renew_attachments(list(self._streams))
        if await self._attachments.cancel_detached():
            self._signals.wake()
