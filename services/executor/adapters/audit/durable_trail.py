"""The audit trail of calls: the stream to the log, and behind it the outbox for the outcomes of what already ran."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Protocol

from libs.common.errors import MeshError, Reason
from libs.common.telemetry.log import Log
from services.executor.adapters.audit.stream import AuditStream, Entry
from services.executor.domain import errors
from services.executor.domain.model import Record


class Keeper(Protocol):
    """The outbox, as far as it concerns a trail."""

    @property
    def full(self) -> bool: ...
    async def start(self) -> None: ...
    async def stop_delivering(self) -> None: ...
    async def keep(self, record: Record, entry: Entry | None) -> None: ...
    async def set_aside(self, record: Record, entry: Entry | None) -> None: ...
    async def keep_all(self, fragments: Sequence[tuple[str, bytes]]) -> None: ...


# What the outbox needs to commit, kept back from the time that a call waits for the log.
OUTBOX_SECONDS = 1.0


class DurableTrail:
    """Appends to the log; what ran and cannot be appended in time goes to the outbox, and from there to the log. What ran and
    is refused by the log stays in the outbox."""

    def __init__(self, stream: AuditStream, outbox: Keeper, log: Log) -> None:
        self._stream, self._outbox, self._log = stream, outbox, log
        self._keeping: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begin to send; does not wait for the log."""
        await self._stream.start()
        await self._outbox.start()

    async def stop(self) -> None:
        """Send what is left as far as the log takes it in a moment; the rest goes to the outbox."""
        await self._outbox.stop_delivering()
        await self._stream.stop()
        # What came from the outbox is still there, and storing an id twice stores it once.
        unsent = self._stream.unsent()
        try:
            if unsent:
                await self._outbox.keep_all([(entry.record_id, entry.fragment) for entry in unsent])
                self._log.info("records left in the outbox", count=len(unsent))
        except MeshError as error:
            self._log.error("records left unsent", count=len(unsent), cause=error)

    def admit(self) -> None:
        """Raise AUDIT_BACKPRESSURE when the outbox has reached its limit."""
        if self._outbox.full:
            raise errors.log_behind()

    def append(self, record: Record, *, within: float) -> Awaitable[None]:
        """Return once the log has the record."""
        return self._stream.append(record, within=within)

    def leave(self, record: Record) -> None:
        """Take a record that nobody waits for."""
        self._stream.leave(record)

    async def conclude(self, record: Record, *, within: float) -> None:
        """Return once the log or the outbox has the record. Raises AUDIT_RECORD_INVALID when the log refused it; the outbox
        then has it for people to look at."""
        entry: Entry | None = None
        patience = max(within - OUTBOX_SECONDS, within / 2)
        try:
            entry = self._stream.take(record)
            await self._stream.confirmed(entry, within=patience)
        except MeshError as error:
            if error.reason is not Reason.AUDIT_RECORD_INVALID:
                await self._kept(record, entry, within - patience)
                return
            with suppress(TimeoutError, MeshError):
                await self._done(self._outbox.set_aside(record, entry), within - patience)
            raise
        except asyncio.CancelledError:
            if entry is not None:
                self._go_on(self._see_through(record, entry, patience))
            raise

    async def _kept(self, record: Record, entry: Entry | None, within: float) -> None:
        """Return once the outbox has the record."""
        try:
            await self._done(self._outbox.keep(record, entry), within)
        except (TimeoutError, MeshError):
            raise errors.not_recorded() from None

    async def _done(self, step: Coroutine[Any, Any, None], within: float) -> None:
        """Return once a step is done. It goes on after the caller's time is over: it is evidence all the same."""
        async with asyncio.timeout(within):
            await asyncio.shield(self._go_on(step))

    async def _see_through(self, record: Record, entry: Entry, patience: float) -> None:
        """Do for a caller who left what would have been done for it: what ran is on record either way."""
        if entry.stored:
            return
        try:
            if entry.refused:
                raise errors.record_refused()
            entry.waiter = asyncio.get_running_loop().create_future()
            await self._stream.confirmed(entry, within=patience)
        except MeshError as error:
            refused = error.reason is Reason.AUDIT_RECORD_INVALID
            await (self._outbox.set_aside if refused else self._outbox.keep)(record, entry)

    def _go_on(self, step: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(step, name="keep-outcome")
        self._keeping.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._keeping.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error("outcome not kept", cause=error)
