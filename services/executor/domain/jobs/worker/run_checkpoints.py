"""The checkpoints of one run of a job: where it starts, and what it saves."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import TypeVar

from libs.common.errors import MeshError, Reason
from libs.common.runtime.clock import Clock
from services.executor.domain.checkpoints import errors
from services.executor.domain.checkpoints.checkpoint import (
    Checkpoint,
    CheckpointBounds,
    CheckpointConfig,
    CheckpointKind,
    RestoredState,
)
from services.executor.domain.checkpoints.encoding import ParentState, encode_checkpoint, normalize
from services.executor.domain.checkpoints.ports import AddOutcome, JobProgress
from services.executor.domain.checkpoints.stored_checkpoints import StoredCheckpoints
from services.executor.domain.idempotency import errors as key_errors
from services.executor.domain.jobs.job import ClaimedJob
from services.executor.domain.run_channel import CheckpointState
from services.executor.domain.tool import Tool

T = TypeVar("T")

MICRO_SECONDS = 3600.0
"""How long micro checkpoints are kept after the newest one."""
_LABEL = re.compile(r"[A-Za-z0-9._-]{1,64}")
_AWAY = frozenset({Reason.STATE_SERVER_UNAVAILABLE, Reason.SERVICE_UNAVAILABLE})


class RunCheckpoints:
    """Restores the state that a run starts from, and stores what the tool saves.

    `on_saved` is called with every stored checkpoint that `save` did not return, `on_left_out` with the reason why a
    micro checkpoint was not written.
    """

    def __init__(
        self,
        job: ClaimedJob,
        stored: StoredCheckpoints,
        progress: JobProgress,
        bounds: CheckpointBounds,
        clock: Clock,
    ) -> None:
        self._job, self._stored, self._progress, self._bounds, self._clock = job, stored, progress, bounds, clock
        self._config: CheckpointConfig | None = None
        self._tool_digest = ""
        self._restored: RestoredState | None = None
        self._number = 0
        self._parents: dict[CheckpointKind, ParentState] = {}
        self._micro_due = 0.0
        self._pending: CheckpointState | None = None
        self._timer: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()
        self.on_saved: Callable[[Checkpoint], None] = lambda checkpoint: None
        self.on_left_out: Callable[[str], None] = lambda why: None

    @property
    def resume_state(self) -> bytes | None:
        """The state to start from; None for a start from the beginning."""
        return None if self._restored is None else self._restored.state

    @property
    def enabled(self) -> bool:
        """Whether the tool saves checkpoints; False before `restore`."""
        return self._config is not None

    async def restore(self, tool: Tool) -> RestoredState:
        """Find where the run starts. Idempotent. Raises where the store of macro checkpoints does not answer."""
        if tool.checkpoint is None:
            return RestoredState()
        if self._restored is None:
            restored = await self._stored.restore(self._job.request.caller, self._job.invocation_id, tool.digest)
            self._restored, self._number = restored, restored.last_number
            self._config, self._tool_digest = tool.checkpoint, tool.digest
        return self._restored

    async def save(self, asked: CheckpointState) -> Checkpoint | None:
        """Store a checkpoint; None if a micro checkpoint is written later, or cannot be written now.

        Raises STATE_TOO_LARGE, CHECKPOINT_FAILED, or SERVICE_UNAVAILABLE when another replica has the job.
        """
        kind = self._kind_of(asked)
        if len(asked.state) > self._bounds.state_bytes:
            raise errors.state_too_large(len(asked.state), self._bounds.state_bytes)
        if kind is CheckpointKind.MICRO and (wait := self._micro_due - self._clock.monotonic()) > 0:
            self._pending = asked
            if self._timer is None or self._timer.done():
                self._timer = asyncio.create_task(self._flush_after(wait), name="checkpoint-interval")
            return None
        self._pending = None
        return await self._save(kind, asked)

    async def flush(self) -> None:
        """Write the micro checkpoint that waits for its interval, if any. Never raises for a store that fails."""
        if self._timer is not None:
            self._timer.cancel()
        asked, self._pending = self._pending, None
        if asked is not None:
            with suppress(MeshError):
                if (saved := await self._save(CheckpointKind.MICRO, asked)) is not None:
                    self.on_saved(saved)

    def close(self) -> None:
        """Write nothing more."""
        self._pending = None
        if self._timer is not None:
            self._timer.cancel()

    def _kind_of(self, asked: CheckpointState) -> CheckpointKind:
        if self._config is None:
            raise errors.not_written("the manifest of the tool does not enable checkpoints")
        if asked.label:
            if not _LABEL.fullmatch(asked.label):
                raise errors.not_written("a label has 1 to 64 letters, digits, dots, dashes and underscores")
            return CheckpointKind.NAMED
        return CheckpointKind.MACRO if asked.event in self._config.macro_events else CheckpointKind.MICRO

    async def _flush_after(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._timer = None
        await self.flush()

    async def _save(self, kind: CheckpointKind, asked: CheckpointState) -> Checkpoint | None:
        async with self._writing:
            try:
                return (
                    await self._write_micro(asked) if kind is CheckpointKind.MICRO else await self._write(kind, asked)
                )
            except _LostError:
                raise key_errors.claim_lost() from None
            except MeshError as error:
                if error.reason in _AWAY:
                    raise errors.not_written("the store does not answer") from error
                raise

    async def _write_micro(self, asked: CheckpointState) -> Checkpoint | None:
        """Store a micro checkpoint. The work is worth more than its checkpoint: it goes on without one."""
        self._micro_due = self._clock.monotonic() + (self._config.interval if self._config else 0.0)
        try:
            # The other store may answer nevertheless, and refuses former attempts too.
            with suppress(MeshError):
                if not await self._progress.note_progress(self._job.invocation_id, self._job.attempt):
                    raise _LostError
            return await self._write(CheckpointKind.MICRO, asked)
        except MeshError as error:
            if error.reason not in (*_AWAY, Reason.CHECKPOINT_FAILED):
                raise
            self.on_left_out(f"a micro checkpoint was not written: {error.reason.name}")
            return None

    async def _write(self, kind: CheckpointKind, asked: CheckpointState) -> Checkpoint:
        state = await self._offload(len(asked.state), lambda: normalize(asked.state))
        parent = self._parents.get(kind)
        outcome, checkpoint = await self._add(kind, asked.label, state, parent)
        if outcome is AddOutcome.NO_PARENT:
            # Deleted by its owner, or lost with the store.
            parent = None
            outcome, checkpoint = await self._add(kind, asked.label, state, None)
        if outcome is AddOutcome.NOT_HELD:
            raise _LostError
        if outcome is not AddOutcome.STORED:
            raise errors.not_written("the tenant or the invocation has too many checkpoints: delete some")
        if kind is not CheckpointKind.NAMED:
            since = parent.since_full + 1 if parent is not None and checkpoint.parent_number else 0
            self._parents[kind] = ParentState(checkpoint.number, state, since)
        return checkpoint

    async def _add(
        self, kind: CheckpointKind, label: str, state: bytes, parent: ParentState | None
    ) -> tuple[AddOutcome, Checkpoint]:
        self._number += 1
        job, now = self._job, self._clock.now()
        checkpoint, content = await self._offload(
            len(state),
            lambda: encode_checkpoint(
                Checkpoint(
                    invocation_id=job.invocation_id,
                    number=self._number,
                    attempt=job.attempt,
                    kind=kind,
                    tool_digest=self._tool_digest,
                    state_bytes=len(state),
                    stored_bytes=0,
                    digest="",
                    create_time=now,
                    label=label,
                    expire_time=now + timedelta(seconds=MICRO_SECONDS) if kind is CheckpointKind.MICRO else None,
                ),
                state,
                parent,
            ),
        )
        tenant = job.request.caller.tenant
        return await self._stored.store_of(kind).add(tenant, checkpoint, content), checkpoint

    async def _offload(self, size: int, work: Callable[[], T]) -> T:
        return await self._stored.offload(self._job.request.caller, size, work)


class _LostError(Exception):
    """Another replica has the job."""
