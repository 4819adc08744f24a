"""Finds the invocations of a caller."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from libs.common.errors import MeshError
from services.executor.domain.jobs import errors as job_errors
from services.executor.domain.jobs.job import Job, JobFilter, JobOwner, JobPage
from services.executor.domain.jobs.ports import JobEvents, JobStore
from services.executor.domain.states import State


class FindInvocations:
    """Reads jobs. Those of others do not exist for a caller."""

    def __init__(self, store: JobStore, events: JobEvents) -> None:
        self._store, self._events = store, events

    async def get(self, owner: JobOwner, invocation_id: str) -> Job:
        """Return a job. Raises INVOCATION_NOT_FOUND."""
        job = await self._store.get(owner, invocation_id)
        if job is None:
            raise job_errors.invocation_not_found(invocation_id)
        if job.state is State.NEEDS_INPUT:
            return replace(job, question=await self._events.last_question(invocation_id))
        return job

    async def estimate_seconds(self, job: Job) -> float | None:
        """Return how long the run of a job will probably take; None if nothing is known, or the store fails."""
        try:
            return await self._store.typical_seconds(job.owner.tenant, job.tool_version)
        except MeshError:
            # The job is stored; its start must not fail for want of an estimate.
            return None

    async def page(self, wanted: JobFilter, size: int, after: tuple[datetime, str] | None) -> JobPage:
        """Return a page of jobs, newest first."""
        return await self._store.page(wanted, size, after)
