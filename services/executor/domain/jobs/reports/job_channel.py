"""Connects a running tool with its job: what it reports becomes events, and what its caller sends reaches it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from libs.common.errors import MeshError
from libs.common.ids import new_id
from libs.common.redaction.tenant_scanners import TenantScanners
from libs.common.runtime.retry import retry_until
from services.executor.domain import errors
from services.executor.domain.checkpoints.checkpoint import Checkpoint
from services.executor.domain.idempotency import errors as key_errors
from services.executor.domain.invocation import Invocation
from services.executor.domain.jobs.event import CheckpointMade, InputAsked
from services.executor.domain.jobs.job import ClaimedJob
from services.executor.domain.jobs.ports import CompileSchema, JobReports, JobSignals, RunCheckpoints
from services.executor.domain.jobs.reports.redact import redact
from services.executor.domain.jobs.reports.report_queue import ReportQueue
from services.executor.domain.jobs.reports.report_writer import ReportWriter
from services.executor.domain.jobs.state_records import StateRecords
from services.executor.domain.run_channel import CheckpointState, InputQuestion, ProgressReport
from services.executor.domain.states import State

T = TypeVar("T")
MAX_MESSAGE = 4_096
_STORE_SECONDS, _RETRY_SECONDS = 5.0, 60.0


class JobChannel:
    """The channel of one run of a job."""

    def __init__(
        self,
        invocation: Invocation,
        queue: ReportQueue,
        channels: JobChannels,
        checkpoints: RunCheckpoints | None = None,
    ) -> None:
        self._invocation, self._queue, self._checkpoints = invocation, queue, checkpoints
        self._store, self._channels = channels.store, channels
        self._canceled: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._answered: asyncio.Future[None] | None = None
        self._asked_id = ""
        self._asking = asyncio.Lock()

    @property
    def resume_state(self) -> bytes | None:
        """The state of the checkpoint to start from; None for a start from the beginning."""
        return None if self._checkpoints is None else self._checkpoints.resume_state

    @property
    def canceled(self) -> asyncio.Future[str]:
        """Done when the run should stop by itself: the reason."""
        return self._canceled

    def cancel(self, reason: str) -> None:
        """Let the tool stop by itself. Idempotent."""
        if not self._canceled.done():
            self._canceled.set_result(reason)

    def progress(self, report: ProgressReport) -> None:
        """Report progress."""
        self._queue.progress(report)

    def log(self, severity: str, text: str) -> None:
        """Report one line."""
        self._queue.log(severity, text)

    def partial_result(self, content: bytes) -> None:
        """Report a part of the result, as JSON."""
        self._queue.part(content)

    def note_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Report a checkpoint that was stored, or that the run starts from."""
        self._queue.put(CheckpointMade(checkpoint))

    async def save(self, checkpoint: CheckpointState) -> None:
        """Store a checkpoint, or leave it out where the last one is too recent."""
        if self._checkpoints is not None and (made := await self._checkpoints.save(checkpoint)) is not None:
            self.note_checkpoint(made)

    async def ask(self, question: InputQuestion) -> bytes:
        """Return the caller's answer, as JSON. Raises INVOCATION_CANCELED when the run should stop instead."""
        if question.schema:
            # The tool learns now that its schema is unusable, not its caller later.
            self._channels.compile_schema(question.schema)
        async with self._asking:
            if self._canceled.done():
                raise errors.canceled()
            return await self._ask(question)

    def note_answered(self, input_id: str) -> None:
        """Note that the store has an answer."""
        if self._answered is not None and input_id == self._asked_id and not self._answered.done():
            self._answered.set_result(None)

    async def finish(self, seconds: float) -> None:
        """Store what was reported last, within so many seconds, and nothing more."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._queue.flush()
        self.close()

    def close(self) -> None:
        """Store nothing more."""
        self._queue.close()

    async def _ask(self, question: InputQuestion) -> bytes:
        await self._queue.flush()
        self._asked_id = input_id = new_id()
        self._answered = asyncio.get_running_loop().create_future()
        asked = InputAsked(input_id, question.message[:MAX_MESSAGE], question.schema, question.requests)
        [shown] = redact([asked], self._queue.scanner())
        assert isinstance(shown, InputAsked)
        await self._held(lambda: self._store.ask(self._queue.job, shown, question.schema))
        self._enter(State.NEEDS_INPUT)
        try:
            pause = self._invocation.pause_timer
            with nullcontext() if pause is None else pause():
                return await self._wait_for_answer(input_id)
        finally:
            self._asked_id, self._answered = "", None

    async def _wait_for_answer(self, input_id: str) -> bytes:
        assert self._answered is not None
        either: list[asyncio.Future[Any]] = [self._answered, self._canceled]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if self._canceled.done():
            raise errors.canceled()
        answer = await self._held(lambda: self._store.take_answer(self._queue.job, input_id))
        self._enter(State.RUNNING)
        return answer

    def _enter(self, state: State) -> None:
        self._invocation.enter(state)
        self._channels.readers.wake()
        self._channels.records.entered(self._invocation)

    async def _held(self, step: Callable[[], Awaitable[T | None]]) -> T:
        """Make a change that only the holder of the job can make, also if the store fails for a while."""
        done: list[T | None] = []

        async def attempt() -> None:
            done.append(await step())

        try:
            await attempt()
        except MeshError:
            await retry_until(attempt, attempt_timeout=_STORE_SECONDS, time_budget=_RETRY_SECONDS)
        outcome = done[-1] if done else None
        if outcome is None:
            raise key_errors.claim_lost()
        return outcome


@dataclass(frozen=True, slots=True)
class JobChannels:
    """Opens the channels of runs."""

    writer: ReportWriter
    store: JobReports
    readers: JobSignals
    """Wakes those that follow jobs."""
    records: StateRecords
    scanners: TenantScanners
    compile_schema: CompileSchema

    def open(self, job: ClaimedJob, invocation: Invocation, checkpoints: RunCheckpoints | None = None) -> JobChannel:
        """Return the channel of a new run."""
        queue = self.writer.open(job, lambda: invocation.scanner_of(self.scanners))
        return JobChannel(invocation, queue, self, checkpoints)
