"""Jobs in PostgreSQL. Requests, tokens and outcomes are stored encrypted, bound to their job."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Row
from toolmesh.common.v1.error_reason_pb2 import ErrorEnvelope
from toolmesh.executor.v1.result_envelope_pb2 import ResultEnvelope

from libs.common.errors import MeshError
from libs.common.rpc.status import envelope, from_envelope
from libs.common.sealing import Seal, SealError
from services.executor.adapters.checkpoints.postgres_checkpoints import checkpoint_columns
from services.executor.adapters.jobs.job_rows import JobRows
from services.executor.convert.invocation import envelope_of, result_of
from services.executor.domain import errors
from services.executor.domain.idempotency import errors as key_errors
from services.executor.domain.jobs.job import ClaimedJob, Job, JobBounds, JobFilter, JobOwner, JobPage, NewJob, Renewal
from services.executor.domain.jobs.requests.resume_invocation import ResumableRequest
from services.executor.domain.model import Caller, Request, Result
from services.executor.domain.states import State


class SealedRequest(msgspec.Struct, frozen=True):
    """What is stored encrypted of a request."""

    request: Request
    token: str


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(SealedRequest)


class PostgresJobs:
    """Stores jobs, and claims them for this process."""

    def __init__(self, rows: JobRows, seal: Seal, bounds: JobBounds) -> None:
        self._rows, self._seal, self._bounds = rows, seal, bounds

    async def add(self, job: NewJob) -> Job:
        """Store a job, or return the one that the same idempotency key started."""
        values = _identifying_columns(job)
        first = await self._rows.find_by_key(values)
        if first is None:
            await self._raise_if_full(job)
            added = await self._rows.add(
                {**values, **self._columns(job)}, max_seconds=job.max_seconds, checkpoint=self._first_checkpoint(job)
            )
            first = None if added else await self._rows.find_by_key(values)
        if first is not None:
            if first.arguments_digest != job.arguments_digest:
                raise key_errors.key_conflict()
            return self._job(first)
        stored = await self.get(JobOwner.of(job.request.caller), job.invocation_id)
        if stored is None:
            raise errors.unexpected()
        return stored

    async def get(self, owner: JobOwner, invocation_id: str) -> Job | None:
        """Return a job with its outcome; None if the owner has none of this id."""
        row = await self._rows.get(owner, invocation_id)
        return None if row is None else self._job(row)

    async def ticket_of_key(self, caller: Caller, tool: str, key: str) -> str:
        """Return the ticket of the job that a key started; empty if there is none."""
        row = await self._rows.find_by_key(_key_columns(caller, tool, key))
        return "" if row is None else row.ticket

    async def page(self, wanted: JobFilter, size: int, after: tuple[datetime, str] | None) -> JobPage:
        """Return a page of jobs without their outcomes, newest first."""
        rows = await self._rows.page(wanted, size + 1, after)
        last = rows[size - 1] if len(rows) > size else None
        jobs = tuple(self._job(row) for row in rows[:size])
        return JobPage(jobs, None if last is None else (last.create_time, last.invocation_id))

    async def typical_seconds(self, tenant: str, tool_version: str) -> float | None:
        """Return the median run time of the last jobs of a tool version that succeeded; None if there are none."""
        return await self._rows.typical_seconds(tenant, tool_version)

    async def request_cancel(self, owner: JobOwner, invocation_id: str) -> Job | None:
        """Request the cancellation of a job that has not ended, and return it; None if the owner has none."""
        await self._rows.request_cancel(owner, invocation_id)
        return await self.get(owner, invocation_id)

    async def claim(self, limit: int, without: Sequence[str] = ()) -> Sequence[ClaimedJob]:
        """Claim up to `limit` jobs that wait or whose replica disappeared, the most urgent first.

        Jobs of the tool versions `without` are left to other replicas.
        """
        bounds = self._bounds
        rows = await self._rows.claim(limit, without, per_tenant=bounds.per_tenant, per_tool=bounds.per_tool)
        return [job for row in rows if (job := await self._claimed(row)) is not None]

    async def begin(self, job: ClaimedJob, source: str = "") -> bool:
        """Note that the tool starts, and from which checkpoint; return False if the job is no longer held."""
        return await self._rows.begin(job.invocation_id, job.attempt, source)

    async def finish(self, job: ClaimedJob, state: State, outcome: Result | MeshError) -> bool:
        """Store the outcome; return False, and change nothing, if the job is no longer held."""
        failed = isinstance(outcome, MeshError)
        message = envelope(outcome) if isinstance(outcome, MeshError) else envelope_of(outcome)
        return await self._rows.finish(
            job.invocation_id,
            job.attempt,
            state=str(state),
            reason=outcome.reason.name if isinstance(outcome, MeshError) else "",
            failed=failed,
            outcome=self._seal.seal(message.SerializeToString(), _outcome_context(job.invocation_id)),
        )

    async def give_back(self, job: ClaimedJob, delay: float = 0.0) -> None:
        """End the claim, so that a replica claims the job again after the delay."""
        await self._rows.give_back(job.invocation_id, job.attempt, delay)

    async def renew(self, held: Sequence[ClaimedJob]) -> dict[str, Renewal]:
        """Renew claims; return those that are still held."""
        rows = await self._rows.renew([(job.invocation_id, job.attempt) for job in held])
        return {row.invocation_id: Renewal(row.cancel_requested, row.answered) for row in rows}

    async def requests(self, held: Sequence[ClaimedJob]) -> dict[str, Renewal]:
        """Return what callers want of these jobs, without renewing them."""
        rows = await self._rows.requests([(job.invocation_id, job.attempt) for job in held])
        return {row.invocation_id: Renewal(row.cancel_requested, row.answered) for row in rows}

    async def sweep(self) -> int:
        """Delete a bounded number of jobs whose time is over; return how many."""
        return await self._rows.sweep()

    async def _raise_if_full(self, job: NewJob) -> None:
        waiting, bounds = await self._rows.count_waiting(job.request.caller.tenant), self._bounds
        if (
            waiting.in_all >= bounds.waiting
            or waiting.of_tenant >= bounds.waiting_per_tenant
            or waiting.bytes_of_tenant >= bounds.waiting_bytes_per_tenant
        ):
            raise errors.queue_full(job.tool, retry_after=10.0)

    def _columns(self, job: NewJob) -> dict[str, Any]:
        request = job.request
        sealed = SealedRequest(msgspec.structs.replace(request, deadline=None), job.token)
        return {
            "invocation_id": job.invocation_id,
            "arguments_digest": job.arguments_digest,
            "tool_version": job.tool_version,
            "tool_digest": job.tool_digest,
            "state": str(job.transitions[-1]),
            "states": [str(state) for state in job.transitions],
            "priority": job.priority,
            "task_id": request.task_id,
            "native_call_id": request.native_call_id,
            "trace_id": request.trace_id,
            "cancel_when_detached": job.cancel_when_detached,
            "request": self._seal.seal(_ENCODER.encode(sealed), _request_context(job.invocation_id)),
            "resumable_request": self._resumable(job) if job.resumable else None,
            "resumed_from": job.resumed_from,
            "parent": job.parent,
            "ticket": job.ticket,
            "awaits_ticket": job.transitions[-1] is State.AWAITING_APPROVAL,
            "callback": self._sealed_callback(job),
        }

    def _resumable(self, job: NewJob) -> bytes:
        request = job.request
        kept = ResumableRequest(
            tool=job.tool,
            version=job.tool_version.rpartition("/")[2],
            tool_digest=job.tool_digest,
            arguments=request.arguments,
            effect_key=request.effect_key or request.idempotency_key,
            session_id=request.caller.session_id,
            task_id=request.task_id,
            priority=request.priority,
        )
        return self._seal.seal(_ENCODER.encode(kept), resumable_context(job.invocation_id))

    def _sealed_callback(self, job: NewJob) -> bytes | None:
        if job.callback is None:
            return None
        return self._seal.seal(_ENCODER.encode(job.callback), callback_context(job.invocation_id))

    def _first_checkpoint(self, job: NewJob) -> dict[str, Any] | None:
        if job.first_checkpoint is None:
            return None
        return checkpoint_columns(self._seal, job.request.caller.tenant, *job.first_checkpoint)

    async def _claimed(self, row: Row[Any]) -> ClaimedJob | None:
        """Decrypt a claimed job. One that no key opens any more ends here: no replica could ever run it."""
        sealed = open_request(self._seal, row.invocation_id, row.request)
        if sealed is None:
            message = envelope(errors.unexpected()).SerializeToString()
            outcome = self._seal.seal(message, _outcome_context(row.invocation_id))
            await self._rows.finish(
                row.invocation_id, row.attempt, state=str(State.FAILED), reason="INTERNAL", failed=True, outcome=outcome
            )
            return None
        return ClaimedJob(
            row.invocation_id,
            row.attempt,
            msgspec.structs.replace(sealed.request, ticket=row.ticket) if row.ticket else sealed.request,
            sealed.token,
            row.seconds_left,
            row.cancel_requested,
            row.losses,
            row.interrupted,
            row.resumed_from,
            row.ticket,
        )

    def _job(self, row: Row[Any]) -> Job:
        return Job(
            invocation_id=row.invocation_id,
            owner=JobOwner(row.tenant, row.subject),
            tool_version=row.tool_version,
            tool_digest=row.tool_digest,
            state=State(row.state),
            sequence=row.sequence,
            attempt=row.attempt,
            executor_id=row.executor_id,
            create_time=row.create_time,
            deadline=row.deadline,
            start_time=row.start_time,
            end_time=row.end_time,
            cancel_requested=row.cancel_requested,
            idempotency_key=row.key,
            task_id=row.task_id,
            native_call_id=row.native_call_id,
            trace_id=row.trace_id,
            resumed_from=row.resumed_from,
            cancel_when_detached=row.cancel_when_detached,
            parent=row.parent,
            ticket=row.ticket,
            outcome=None if row.outcome is None else self._open_outcome(row),
        )

    def _open_outcome(self, row: Row[Any]) -> Result | MeshError:
        try:
            message = self._seal.open(row.outcome, _outcome_context(row.invocation_id))
        except SealError:
            return key_errors.outcome_unknown(row.invocation_id, row.key)
        if row.failed:
            return from_envelope(ErrorEnvelope.FromString(message))
        return result_of(ResultEnvelope.FromString(message))


def _identifying_columns(job: NewJob) -> dict[str, Any]:
    return _key_columns(job.request.caller, job.tool, job.request.idempotency_key)


def _key_columns(caller: Caller, tool: str, key: str) -> dict[str, Any]:
    return {
        "tenant": caller.tenant,
        "subject": caller.subject,
        "session": caller.session_id,
        "tool": tool,
        "key": key,
    }


def open_request(seal: Seal, invocation_id: str, sealed: bytes) -> SealedRequest | None:
    """Return the request of a job; None if no key opens it any more."""
    try:
        return _DECODER.decode(seal.open(sealed, _request_context(invocation_id)))
    except (SealError, msgspec.DecodeError):
        return None


def _request_context(invocation_id: str) -> str:
    return f"jobs/{invocation_id}/request"


def resumable_context(invocation_id: str) -> str:
    """Return the context that a kept request is bound to."""
    return f"jobs/{invocation_id}/resumable"


def callback_context(invocation_id: str) -> str:
    """Return the context that a callback is bound to."""
    return f"jobs/{invocation_id}/callback"


def _outcome_context(invocation_id: str) -> str:
    return f"jobs/{invocation_id}/outcome"
