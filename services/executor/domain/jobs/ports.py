"""The interfaces that adapters implement for jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from libs.common.errors import MeshError
from services.executor.domain.jobs.job import ClaimedJob, Job, JobEvent, JobFilter, JobOwner, JobPage, NewJob
from services.executor.domain.model import Caller, Request, Result
from services.executor.domain.states import State


class JobStore(Protocol):
    """The jobs of all replicas. Every method raises SERVICE_UNAVAILABLE when the store does not answer."""

    async def add(self, job: NewJob) -> Job:
        """Store a job, or return the one that the same idempotency key started.

        Raises IDEMPOTENCY_CONFLICT for a key with other arguments, QUEUE_FULL when too many jobs wait.
        """
        ...

    async def get(self, owner: JobOwner, invocation_id: str) -> Job | None:
        """Return a job with its outcome; None if the owner has none of this id."""
        ...

    async def page(self, wanted: JobFilter, size: int, after: tuple[datetime, str] | None) -> JobPage:
        """Return a page of jobs without their outcomes, newest first."""
        ...

    async def events(self, invocation_id: str, after: int, limit: int) -> Sequence[JobEvent]:
        """Return events behind a sequence, in order."""
        ...

    async def sequences(self, invocation_ids: Sequence[str]) -> Mapping[str, int]:
        """Return the sequence of the last event of each job that exists."""
        ...

    async def request_cancel(self, owner: JobOwner, invocation_id: str) -> Job | None:
        """Request the cancellation of a job that has not ended, and return it; None if the owner has none."""
        ...


class JobLeases(Protocol):
    """The jobs that replicas claim. A claim holds until its lease expires, and is renewed until `finish`."""

    async def claim(self, limit: int, without: Sequence[str]) -> Sequence[ClaimedJob]:
        """Claim up to `limit` jobs that wait or whose replica disappeared, the most urgent first.

        Jobs of the tool versions `without` are left to other replicas.
        """
        ...

    async def begin(self, job: ClaimedJob, source: str = "") -> bool:
        """Note that the tool starts, and from which checkpoint; return False if the job is no longer held."""
        ...

    async def finish(self, job: ClaimedJob, state: State, outcome: Result | MeshError) -> bool:
        """Store the outcome; return False, and change nothing, if the job is no longer held."""
        ...

    async def give_back(self, job: ClaimedJob, delay: float = 0.0) -> None:
        """End the claim, so that a replica claims the job again after the delay."""
        ...

    async def renew(self, held: Sequence[ClaimedJob]) -> dict[str, bool]:
        """Renew claims; return those that are still held, and whether their cancellation was requested."""
        ...


class JobSignals(Protocol):
    """Wakes whatever waits for jobs, in all replicas. Signals may be lost; everything that waits also polls."""

    def wake(self) -> None:
        """Signal that a job was added, changed or ended."""
        ...

    def next_wake(self) -> asyncio.Future[None]:
        """Return a future of the next signal."""
        ...


class CallerSessions(Protocol):
    """Acts on behalf of callers that are no longer connected."""

    async def resume(self, token: str, request: Request, deadline: float) -> Caller:
        """Verify the token of a stored request again, make it the current task's, and return its caller.

        Raises what a new request with the token would: TOKEN_EXPIRED, TOKEN_REVOKED and others.
        """
        ...
