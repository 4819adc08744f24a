"""Resumes an invocation that ended: starts a new one with the same arguments, from a checkpoint."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from services.executor.domain.checkpoints import errors
from services.executor.domain.checkpoints.encoding import CheckpointDamagedError
from services.executor.domain.checkpoints.stored_checkpoints import StoredCheckpoints
from services.executor.domain.jobs import errors as job_errors
from services.executor.domain.jobs.job import Job, JobOwner
from services.executor.domain.jobs.requests.start_invocation import ResumedRun, StartRequest
from services.executor.domain.model import Caller, Request
from services.executor.domain.states import State

_SECONDS = 86_400.0
_RESUMABLE = frozenset({State.FAILED, State.TIMED_OUT, State.CANCELED})


class ResumableJob(Struct, frozen=True):
    """What is kept of a job to resume it."""

    state: State
    ended: bool
    request: ResumableRequest | None
    """None for a tool without checkpoints, and for a job that succeeded."""


class ResumableRequest(Struct, frozen=True):
    """The request of a job, without its caller."""

    tool: str
    version: str
    tool_digest: str
    arguments: bytes
    effect_key: str
    """The key that the tool saw."""
    session_id: str
    task_id: str
    priority: int


class ResumableJobs(Protocol):
    """Finds what is kept of jobs."""

    async def find(self, owner: JobOwner, invocation_id: str) -> ResumableJob | None:
        """Return a job of an owner; None if there is none. Raises SERVICE_UNAVAILABLE."""
        ...


class ResumeInvocation:
    """Resumes invocations through the admission of a start: validated, authorized and recorded again."""

    def __init__(
        self, jobs: ResumableJobs, stored: StoredCheckpoints, start: Callable[[StartRequest], Awaitable[Job]]
    ) -> None:
        self._jobs, self._stored, self._start = jobs, stored, start

    async def execute(
        self,
        owner: JobOwner,
        request_in: Callable[[str], Request],
        token: str,
        invocation_id: str,
        number: int | None,
    ) -> Job:
        """Return the new job, or the one that the same resumption started before.

        `request_in` returns an empty request of the caller in a session: that of the old job. `number` is that of a
        checkpoint; None for the newest usable one. Raises INVOCATION_NOT_FOUND, RESUME_FAILED, CHECKPOINT_NOT_FOUND,
        CHECKPOINT_CORRUPTED, and like a start.
        """
        request = await self._resumable(owner, invocation_id)
        asked = request_in(request.session_id)
        state = await self._state(asked.caller, invocation_id, number, request.tool_digest)
        # A resumption that is asked for twice is made once.
        start = "newest" if number is None else str(number)
        resumed = replace(
            asked,
            tool=request.tool,
            arguments=request.arguments,
            version=request.version,
            tool_digest=request.tool_digest,
            idempotency_key=f"invocations/{invocation_id}/resumed/{start}",
            task_id=request.task_id,
            priority=request.priority,
            effect_key=request.effect_key,
        )
        return await self._start(
            StartRequest(resumed, token, _SECONDS, resume=ResumedRun(invocation_id, request.tool_digest, state))
        )

    async def _resumable(self, owner: JobOwner, invocation_id: str) -> ResumableRequest:
        job = await self._jobs.find(owner, invocation_id)
        if job is None:
            raise job_errors.invocation_not_found(invocation_id)
        if not job.ended:
            raise errors.not_resumable("the invocation has not ended: wait for its end, or cancel it first")
        if job.state not in _RESUMABLE:
            raise errors.not_resumable("only an invocation that failed, timed out or was cancelled is resumed")
        if job.request is None:
            raise errors.not_resumable("the tool does not save checkpoints: start it again")
        return job.request

    async def _state(self, caller: Caller, invocation_id: str, number: int | None, tool_digest: str) -> bytes:
        prefix = f"invocations/{invocation_id}/checkpoints"
        if number is None:
            restored = await self._stored.restore(caller, invocation_id, tool_digest)
            if restored.state is not None:
                return restored.state
            if restored.unusable:
                raise errors.checkpoint_corrupted(f"{prefix}/{restored.unusable[0]}")
            raise errors.checkpoint_not_found(prefix)
        found, available = await self._stored.find(invocation_id)
        checkpoint = next((each for each in found if each.number == number), None)
        if checkpoint is None:
            raise errors.checkpoint_not_found(f"{prefix}/{number}") if available else errors.store_unavailable()
        try:
            return await self._stored.load(caller, checkpoint, tool_digest)
        except CheckpointDamagedError:
            raise errors.checkpoint_corrupted(checkpoint.name) from None
