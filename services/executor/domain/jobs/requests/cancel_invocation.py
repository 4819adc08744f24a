"""Cancels an invocation by name."""

from __future__ import annotations

from services.executor.domain.jobs import errors as job_errors
from services.executor.domain.jobs.job import Job, JobOwner
from services.executor.domain.jobs.ports import JobSignals, JobStore


class CancelInvocation:
    """Requests cancellations. The replica that runs the job, or the next that claims it, carries them out."""

    def __init__(self, store: JobStore, signals: JobSignals) -> None:
        self._store, self._signals = store, signals

    async def execute(self, owner: JobOwner, invocation_id: str) -> Job:
        """Return the job once the request is durable. Raises INVOCATION_NOT_FOUND."""
        job = await self._store.request_cancel(owner, invocation_id)
        if job is None:
            raise job_errors.invocation_not_found(invocation_id)
        if not job.ended:
            self._signals.wake()
        return job
