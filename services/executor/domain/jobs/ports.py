"""The interfaces that adapters implement for jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol, TypeAlias

from libs.common.errors import MeshError
from services.executor.domain.checkpoints.checkpoint import Checkpoint
from services.executor.domain.jobs.event import InputAsked, JobEvent, ReportBatch
from services.executor.domain.jobs.job import (
    AwaitingJob,
    ClaimedJob,
    Job,
    JobFilter,
    JobOwner,
    JobPage,
    NewJob,
    PendingQuestion,
    Renewal,
)
from services.executor.domain.model import Caller, Request, Result
from services.executor.domain.run_channel import CheckpointState
from services.executor.domain.states import State
from services.executor.domain.tool import Contract

# Compiles the schema of an answer. Raises EXECUTION_FAILED for a schema that cannot be used: the tool wrote it.
CompileSchema: TypeAlias = Callable[[bytes], Contract]


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

    async def ticket_of_key(self, caller: Caller, tool: str, key: str) -> str:
        """Return the ticket of the job that a key started; empty if there is none."""
        ...

    async def page(self, wanted: JobFilter, size: int, after: tuple[datetime, str] | None) -> JobPage:
        """Return a page of jobs without their outcomes, newest first."""
        ...

    async def typical_seconds(self, tenant: str, tool_version: str) -> float | None:
        """Return the median run time of the last jobs of a tool version that succeeded; None if there are none."""
        ...

    async def request_cancel(self, owner: JobOwner, invocation_id: str) -> Job | None:
        """Request the cancellation of a job that has not ended, and return it; None if the owner has none."""
        ...


class JobEvents(Protocol):
    """The events of jobs, for readers in all replicas. Fails like JobStore."""

    async def events(self, invocation_id: str, after: int, limit: int) -> Sequence[JobEvent]:
        """Return events behind a sequence, in order."""
        ...

    async def events_of(self, readers: Mapping[str, int], limit: int) -> Mapping[str, Sequence[JobEvent]]:
        """Return the events of many jobs, each behind a sequence, in order. At most `limit` of each job."""
        ...

    async def progress(self, invocation_ids: Sequence[str]) -> Mapping[str, tuple[int, bool]]:
        """Return the sequence of the last event of each job that exists, and whether the job ended."""
        ...

    async def last_question(self, invocation_id: str) -> InputAsked | None:
        """Return what the tool of a job asked last; None if it never asked."""
        ...


class JobQuestions(Protocol):
    """The questions of jobs, for their callers. Fails like JobStore."""

    async def question(self, owner: JobOwner, invocation_id: str) -> PendingQuestion | None:
        """Return the question that a job waits with; None if the owner has no such job."""
        ...

    async def answer(self, owner: JobOwner, invocation_id: str, input_id: str, content: bytes) -> bool:
        """Store the answer to a question; return False, and change nothing, if the job does not wait with it."""
        ...


class JobAttachments(Protocol):
    """The jobs that are cancelled when no stream is attached to them. Fails like JobStore."""

    async def renew_attachments(self, invocation_ids: Collection[str]) -> None:
        """Note that streams are attached to these jobs."""
        ...

    async def cancel_detached(self) -> int:
        """Request the cancellation of jobs that no stream is attached to any more and that ask for it, and of the
        parts of jobs that are cancelled."""
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

    async def renew(self, held: Sequence[ClaimedJob]) -> Mapping[str, Renewal]:
        """Renew claims; return those that are still held."""
        ...

    async def requests(self, held: Sequence[ClaimedJob]) -> Mapping[str, Renewal]:
        """Return those whose cancellation was requested or whose question was answered. Renews nothing."""
        ...


class AwaitingJobs(Protocol):
    """The jobs that wait for a person. No replica holds them. Fails like JobStore."""

    async def due(self, limit: int) -> Sequence[AwaitingJob]:
        """Return jobs whose ticket is to be looked at now. Other replicas do not get them for a second or more."""
        ...

    async def wait(self, job: ClaimedJob, ticket: str) -> None:
        """End the claim of a job, and let it wait for a ticket."""
        ...

    async def release(self, job: AwaitingJob, *, approved: bool) -> None:
        """Let a job be claimed. Idempotent."""
        ...


class JobReports(Protocol):
    """Stores what runs report. Only the replica that holds a job stores anything about it."""

    async def append(self, batches: Sequence[ReportBatch]) -> Collection[str]:
        """Store batches as events, each once however often it is given; return the ids of the jobs that are held."""
        ...

    async def ask(self, job: ClaimedJob, asked: InputAsked, schema: bytes) -> str | None:
        """Store a question, shown as `asked`, whose answer satisfies the schema, and return its id. Idempotent.

        The job needs input then. Returns None if it is no longer held.
        """
        ...

    async def take_answer(self, job: ClaimedJob, input_id: str) -> bytes | None:
        """Return the answer to a question, and let the job run again. Idempotent.

        Returns None if there is no answer, or the job is no longer held.
        """
        ...


class RunCheckpoints(Protocol):
    """The checkpoints of one run."""

    @property
    def resume_state(self) -> bytes | None:
        """The state to start from; None for a start from the beginning."""
        ...

    async def save(self, checkpoint: CheckpointState) -> Checkpoint | None:
        """Store a checkpoint; None if it is left out because the last one is too recent."""
        ...


class JobSignals(Protocol):
    """Wakes whatever waits for jobs or for their events, in all replicas.

    Signals may be lost; everything that waits also polls.
    """

    def wake(self) -> None:
        """Signal a change."""
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
