"""Finds the invocations of a caller."""

from __future__ import annotations

from datetime import datetime

from services.executor.domain import errors
from services.executor.domain.jobs.job import Job, JobFilter, JobOwner, JobPage
from services.executor.domain.jobs.ports import JobStore


class FindInvocations:
    """Reads jobs. Those of others do not exist for a caller."""

    def __init__(self, store: JobStore) -> None:
        self._store = store

    async def get(self, owner: JobOwner, invocation_id: str) -> Job:
        """Return a job. Raises INVOCATION_NOT_FOUND."""
        job = await self._store.get(owner, invocation_id)
        if job is None:
            raise errors.invocation_not_found(invocation_id)
        return job

    async def page(self, wanted: JobFilter, size: int, after: tuple[datetime, str] | None) -> JobPage:
        """Return a page of jobs, newest first."""
        return await self._store.page(wanted, size, after)
