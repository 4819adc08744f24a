"""The durable audit trail: the stream to the audit log, with the outbox as fallback for the outcomes of runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Protocol

from libs.common.errors import MeshError, Reason
from libs.common.runtime.tasks import BackgroundTasks
from libs.common.telemetry.log import Log
from services.executor.adapters.audit.stream import AuditStream, PendingRecord
from services.executor.domain import errors
from services.executor.domain.model import EncodedRecord, Record


class RecordOutbox(Protocol):
    """The outbox operations that the trail uses."""

    @property
    def full(self) -> bool: ...
    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    async def store(self, record: Record, pending: PendingRecord | None) -> None: ...
    async def store_refused(self, record: Record, pending: PendingRecord | None) -> None: ...
    async def store_encoded(self, records: Sequence[tuple[str, bytes]]) -> None: ...


# The time reserved for the outbox's commit within the time that a call waits for the log.
OUTBOX_SECONDS = 1.0


class DurableTrail:
    """Appends records to the log.

    Outcomes that the log does not confirm in time go to the outbox, which delivers them later. Outcomes that the log
    refuses are sent in their reduced form; if it refuses that too, they stay in the outbox for inspection.
    """

    def __init__(self, stream: AuditStream, outbox: RecordOutbox, log: Log) -> None:
        self._stream, self._outbox, self._log = stream, outbox, log
        self._tasks = BackgroundTasks(log, "outcome not stored")

    async def start(self) -> None:
        """Start sending. Does not wait for the log."""
        await self._stream.start()
        await self._outbox.start()

    async def stop(self) -> None:
        """Flush to the log for a moment, then store the rest in the outbox."""
        await self._outbox.stop()
        await self._stream.stop()
        # Records that came from the outbox are still in it; storing an id twice has no effect.
        unconfirmed = self._stream.unconfirmed()
        try:
            if unconfirmed:
                await self._outbox.store_encoded([(pending.record_id, pending.encoded) for pending in unconfirmed])
                self._log.info("records stored in the outbox", count=len(unconfirmed))
        except MeshError as error:
            self._log.error("records lost at shutdown", count=len(unconfirmed), cause=error)

    def admit(self) -> None:
        """Raise AUDIT_BACKPRESSURE if the outbox has reached its limit."""
        if self._outbox.full:
            raise errors.log_behind()

    def append(self, record: Record, *, within: float) -> Awaitable[None]:
        """Append a record and wait until the log has it."""
        return self._stream.append(record, within=within)

    def leave(self, record: Record) -> None:
        """Append a record without waiting for the log."""
        self._stream.enqueue_unawaited(record)

    async def restore(self, record: EncodedRecord, *, within: float) -> None:
        """Append an encoded record, which the log may have already, and wait until the log has it."""
        [confirmed] = self._stream.enqueue_encoded([record])
        try:
            async with asyncio.timeout(within):
                await confirmed
        except TimeoutError:
            raise errors.not_recorded() from None

    async def conclude(self, record: Record, *, within: float) -> None:
        """Return once the log or the outbox has the record.

        Raises AUDIT_RECORD_INVALID if the log refused it in full and reduced; the outbox then stores it for inspection.
        """
        pending: PendingRecord | None = None
        log_seconds = max(within - OUTBOX_SECONDS, within / 2)
        try:
            pending = self._stream.enqueue(record)
            await self._stream.wait_confirmed(pending, within=log_seconds)
        except MeshError as error:
            if error.reason is not Reason.AUDIT_RECORD_INVALID:
                await self._store(record, pending, within - log_seconds)
                return
            with suppress(TimeoutError, MeshError):
                await self._finish_within(self._outbox.store_refused(record, pending), within - log_seconds)
            raise
        except asyncio.CancelledError:
            if pending is not None:
                self._spawn(self._conclude_unawaited(record, pending, log_seconds))
            raise

    async def _store(self, record: Record, pending: PendingRecord | None, within: float) -> None:
        """Return once the outbox has the record."""
        try:
            await self._finish_within(self._outbox.store(record, pending), within)
        except (TimeoutError, MeshError):
            raise errors.not_recorded() from None

    async def _finish_within(self, step: Coroutine[Any, Any, None], within: float) -> None:
        """Wait for a step. It continues in the background after the timeout, because the record is still evidence."""
        async with asyncio.timeout(within):
            await asyncio.shield(self._spawn(step))

    async def _conclude_unawaited(self, record: Record, pending: PendingRecord, log_seconds: float) -> None:
        """Record the outcome of a run whose caller was canceled."""
        if pending.stored:
            return
        try:
            if pending.refused:
                raise errors.record_refused()
            pending.waiter = asyncio.get_running_loop().create_future()
            await self._stream.wait_confirmed(pending, within=log_seconds)
        except MeshError as error:
            refused = error.reason is Reason.AUDIT_RECORD_INVALID
            await (self._outbox.store_refused if refused else self._outbox.store)(record, pending)

    def _spawn(self, step: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._tasks.spawn(step, name="store-outcome")
