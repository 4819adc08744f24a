"""Starts an invocation that runs without its caller: validate, authorize, record, store."""

from __future__ import annotations

import asyncio
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from libs.common.errors import MeshError, Reason
from libs.common.json.canonical import digest
from libs.common.json.jsonio import parse_object
from services.executor.domain.audit_records import outcome_record
from services.executor.domain.callbacks.callback_rules import CallbackRules
from services.executor.domain.checkpoints.checkpoint import Checkpoint, CheckpointKind
from services.executor.domain.checkpoints.encoding import encode_checkpoint
from services.executor.domain.deadlines import time_left
from services.executor.domain.invocation import Invocation
from services.executor.domain.jobs import errors as job_errors
from services.executor.domain.jobs.job import Callback, Job, JobOwner, NewJob
from services.executor.domain.jobs.ports import JobSignals, JobStore
from services.executor.domain.jobs.state_records import StateRecords
from services.executor.domain.model import Request
from services.executor.domain.phases.pipeline import Pipeline
from services.executor.domain.scheduling.slots import priority_of
from services.executor.domain.states import State
from services.executor.domain.tool import Mutation, Tool


class ResumedRun(Struct, frozen=True):
    """What a resumed call continues."""

    invocation_id: str
    tool_digest: str
    state: bytes


class StartRequest(Struct, frozen=True):
    """A call to be started, the token that it is started with, and how long it may take."""

    request: Request
    token: str
    max_seconds: float
    cancel_when_detached: bool = False
    """True if it is cancelled when no stream is attached to it for some time."""
    callback: Callback | None = None
    resume: ResumedRun | None = None
    parent: str = ""
    """The invocation that it is a part of; empty for none."""


class StartInvocation:
    """Accepts calls as jobs. An accepted call is authorized, on record and durable."""

    def __init__(
        self, pipeline: Pipeline, store: JobStore, signals: JobSignals, records: StateRecords, rules: CallbackRules
    ) -> None:
        self._pipeline, self._ports = pipeline, pipeline.ports
        self._store, self._signals, self._records, self._rules = store, signals, records, rules

    async def execute(self, asked: StartRequest) -> Job:
        """Return the job, or the one that the same key started before. Raises MeshError with the invocation's id."""
        if asked.callback is not None:
            self._rules.check(asked.callback)
        invocation = Invocation(asked.request, self._ports.clock, self._ports.spans.begin())
        phases = partial(self._run_phases, asked=asked)
        return await self._pipeline.supervisor.run(invocation, phases)

    async def _run_phases(self, invocation: Invocation, *, asked: StartRequest) -> Job:
        phases, begin = self._pipeline, invocation.phases.begin

        begin("request")
        phases.preflight.admit(invocation)

        await self._check_parent(asked)

        begin("validate")
        tool = await phases.preflight.validate(invocation)

        begin("authorize")
        invocation.awaited_ticket = partial(self._ticket_of_key, asked.request)
        if await self._allowed(invocation, tool):
            await phases.authorization.record_decision(invocation)
            invocation.enter(State.QUEUED)

        begin("return")
        new = self._new_job(invocation, tool, asked, await self._first_checkpoint(invocation, asked.resume))
        added: list[Job] = []
        if await phases.steps.finish_before_cancel(self._add(invocation, new, added)):
            raise asyncio.CancelledError
        [job] = added
        if job.invocation_id != invocation.invocation_id:
            await self._record_repeated(invocation)
        elif invocation.state is State.AWAITING_APPROVAL:
            self._records.entered(invocation)
        else:
            self._records.queued(invocation)
        invocation.phases.end()
        self._signals.wake()
        return job

    async def _check_parent(self, asked: StartRequest) -> None:
        """Raise INVOCATION_NOT_FOUND or FAILED_PRECONDITION for a parent that cannot have parts any more."""
        if not asked.parent:
            return
        parent = await self._store.get(JobOwner.of(asked.request.caller), asked.parent)
        if parent is None:
            raise job_errors.invocation_not_found(asked.parent)
        if parent.ended or parent.cancel_requested:
            raise job_errors.parent_over(asked.parent)

    async def _allowed(self, invocation: Invocation, tool: Tool) -> bool:
        """Return True if the call may run, False if it waits for the approval of its ticket. Raises any other refusal.

        The decision to wait is on record then.
        """
        try:
            await self._pipeline.authorization.authorize(invocation, tool)
        except MeshError as refused:
            if refused.reason is Reason.APPROVAL_REQUIRED and invocation.ticket and not invocation.closed:
                return False
            raise
        return True

    async def _ticket_of_key(self, request: Request, tool: str) -> str:
        key = request.idempotency_key
        return await self._store.ticket_of_key(request.caller, tool, key) if key else ""

    async def _add(self, invocation: Invocation, new: NewJob, added: list[Job]) -> None:
        job = await self._store.add(new)
        # The replica that runs the job records its outcome, also if this caller leaves now.
        invocation.closed = job.invocation_id == invocation.invocation_id
        added.append(job)

    def _new_job(
        self, invocation: Invocation, tool: Tool, asked: StartRequest, first: tuple[Checkpoint, bytes] | None
    ) -> NewJob:
        request = invocation.request
        # A job is one effect, whichever replica runs it: without a key of the caller, its own name is its key.
        implied = "" if tool.mutation is Mutation.READ_ONLY else f"invocations/{invocation.invocation_id}"
        return NewJob(
            invocation_id=invocation.invocation_id,
            request=replace(request, idempotency_key=request.idempotency_key or implied),
            token=asked.token,
            tool=tool.qualified,
            tool_version=tool.name,
            tool_digest=tool.digest,
            arguments_digest=digest(parse_object(request.arguments)),
            priority=priority_of(invocation, tool),
            max_seconds=asked.max_seconds,
            transitions=invocation.history.steps,
            cancel_when_detached=asked.cancel_when_detached,
            resumable=tool.checkpoint is not None,
            resumed_from="" if asked.resume is None else asked.resume.invocation_id,
            first_checkpoint=first,
            callback=asked.callback,
            parent=asked.parent,
            ticket=invocation.ticket,
        )

    async def _first_checkpoint(
        self, invocation: Invocation, resume: ResumedRun | None
    ) -> tuple[Checkpoint, bytes] | None:
        """Return the state to start from as a checkpoint of the new job, so that it does not depend on the old one."""
        if resume is None:
            return None
        checkpoint = Checkpoint(
            invocation_id=invocation.invocation_id,
            number=1,
            attempt=0,
            kind=CheckpointKind.MACRO,
            tool_digest=resume.tool_digest,
            state_bytes=len(resume.state),
            stored_bytes=0,
            digest="",
            create_time=self._ports.clock.now(),
        )
        return await self._ports.heavy_work.run(
            invocation.request.caller, lambda: encode_checkpoint(checkpoint, resume.state, None)
        )

    async def _record_repeated(self, invocation: Invocation) -> None:
        """Record that the call started nothing: the job of its key was there."""
        if invocation.state is State.AWAITING_APPROVAL:
            # It ends with the decision, which is on record.
            invocation.replayed, invocation.closed = True, True
            return
        invocation.enter(State.YIELDED)
        invocation.enter(State.SUCCEEDED)
        invocation.replayed, invocation.closed = True, True
        within = time_left(invocation.deadline.answer_by, self._ports.clock, self._pipeline.audit_wait)
        await self._ports.audit.conclude(outcome_record(invocation), within=within)
