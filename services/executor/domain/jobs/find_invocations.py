"""Finds the invocations of a caller."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from services.executor.domain import errors
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
            raise errors.invocation_not_found(invocation_id)
        if job.state is State.NEEDS_INPUT:
            return replace(job, question=await self._events.last_question(invocation_id))
        return job

    async def page(self, wanted: JobFilter, size: int, after: tuple[datetime, str] | None) -> JobPage:
        """Return a page of jobs, newest first."""
        return await self._store.page(wanted, size, after)
