"""Outcomes that wait for the log, in PostgreSQL: durable before their call is answered, delivered when the log is back.

Written only when the log did not confirm in time, so a call on a healthy mesh never comes here. Whoever holds the lease delivers, in
the order of writing; a row goes when the log has its record. What a killed process left is delivered by its successor or by another
replica, and a record that was sent twice is stored once, by its id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.errors import MeshError
from libs.common.telemetry.log import Log
from services.executor.adapters.audit.outbox_metrics import OutboxMetrics
from services.executor.adapters.audit.outbox_rows import OutboxRows, Row
from services.executor.adapters.audit.record_encoder import RecordWriter
from services.executor.adapters.audit.stream import AuditStream, Entry
from services.executor.domain.model import Record

LIMIT = 10_000
LEASE_SECONDS = 10.0
POLL_SECONDS = 3.0


class Outbox:
    """Keeps records until the log has them. Takes what must be taken even beyond its limit; being full refuses new work instead."""

    def __init__(
        self,
        engine: AsyncEngine,
        writer: RecordWriter,
        log: Log,
        *,
        owner: str,
        limit: int = LIMIT,
        lease: float = LEASE_SECONDS,
        poll: float = POLL_SECONDS,
    ) -> None:
        self._rows = OutboxRows(engine, owner, lease)
        self._writer, self._log = writer, log
        self._limit, self._lease, self._poll = limit, lease, poll
        self._metrics = OutboxMetrics()
        self._depth = 0
        self._pending: list[tuple[str, bytes, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._delivered: set[str] = set()
        self._on_their_way: set[str] = set()
        """Kept here, and also still in the stream's own queue: they need no second way."""
        self._due = asyncio.Event()
        self._delivering: asyncio.Task[None] | None = None
        self._stream: AuditStream | None = None

    @property
    def full(self) -> bool:
        """True while as much waits for the log as may."""
        return self._depth >= self._limit

    def attach(self, stream: AuditStream) -> None:
        """Name the stream that rows are delivered through."""
        self._stream = stream

    async def start(self) -> None:
        """Begin to deliver what is there; does not wait for the log."""
        self._due.set()
        self._delivering = asyncio.create_task(self._deliver_forever(), name="outbox")

    async def stop_delivering(self) -> None:
        """Leave the rows, and the lease, to others."""
        if self._delivering is None:
            return
        self._delivering.cancel()
        await asyncio.wait([self._delivering])
        try:
            await self._rows.release()
        except MeshError as error:
            self._log.warning("lease not given back", reason=error.reason.name)

    async def keep(self, record: Record, entry: Entry | None) -> None:
        """Return once the record is durable here. Raises SERVICE_UNAVAILABLE when the database does not take it."""
        fragment = self._writer.fragment(record) if entry is None else entry.fragment
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # What the stream is done with it does not mention again: it is delivered from here, and refused here if it must be.
        if entry is not None and not entry.stored and not entry.refused:
            entry.kept = True
            self._on_their_way.add(record.record_id)
        self._pending.append((record.record_id, fragment, done))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_pending(), name="outbox-write")
        await done
        if entry is not None and entry.stored:
            self.settled(record.record_id, True)

    async def set_aside(self, record: Record, entry: Entry | None) -> None:
        """Return once a record that the log refused is durable here, for people to look at; it is not delivered again. Raises
        SERVICE_UNAVAILABLE when the database does not take it."""
        await self._rows.set_aside(record.record_id, self._writer.fragment(record) if entry is None else entry.fragment)
        self._due.set()

    async def keep_all(self, fragments: Sequence[tuple[str, bytes]]) -> None:
        """Return once all of it is durable here."""
        await self._rows.put(fragments)

    def settled(self, record_id: str, stored: bool) -> None:
        """Take note that the stream is done with a record that is kept here: the log has it, or refused it."""
        self._on_their_way.discard(record_id)
        if stored:
            self._delivered.add(record_id)
        self._due.set()

    async def _write_pending(self) -> None:
        """Everything that comes while one commit runs goes into the next."""
        while self._pending:
            pending, self._pending = self._pending, []
            try:
                await self._rows.put([(record_id, fragment) for record_id, fragment, _ in pending])
            except Exception as error:
                # Whatever it was must reach those who wait: a forgotten waiter would wait for nothing.
                for _, _, done in pending:
                    if not done.done():
                        done.set_exception(error)
                continue
            self._depth += len(pending)
            self._metrics.kept(len(pending))
            for _, _, done in pending:
                if not done.done():
                    done.set_result(None)
            self._due.set()

    async def _deliver_forever(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._poll):
                    await self._due.wait()
            except TimeoutError:
                pass
            self._due.clear()
            try:
                await self._forget_delivered()
                while await self._look() and await self._rows.lease() and await self._deliver_some():
                    continue
            except Exception as error:
                # Whatever it was, the rows are still there and the next round comes.
                self._log.error("outbox not delivered", depth=self._depth, cause=error)
                await asyncio.sleep(self._poll)

    async def _look(self) -> int:
        standing = await self._rows.standing()
        self._depth = standing.waiting
        self._metrics.observe(standing)
        return standing.waiting

    async def _forget_delivered(self) -> None:
        delivered, self._delivered = self._delivered, set()
        if delivered:
            self._metrics.delivered(await self._rows.remove(list(delivered)))

    async def _deliver_some(self) -> bool:
        """Deliver the oldest rows. The stream goes on trying for as long as it takes; meanwhile the lease is kept."""
        found = await self._rows.oldest()
        elsewhere = self._on_their_way | self._delivered
        rows = [row for row in found if row.record_id not in elsewhere]
        if not rows or self._stream is None:
            return False
        waiters = self._stream.forward([(row.record_id, row.fragment) for row in rows])
        waiting: set[asyncio.Future[None]] = set(waiters)
        while waiting:
            _, waiting = await asyncio.wait(waiting, timeout=self._lease / 3)
            if waiting:
                await self._stay()
        await self._settle(rows, waiters)
        return True

    async def _stay(self) -> None:
        """Keep the lease. Who loses it meanwhile does no harm: what is delivered twice is stored once."""
        try:
            await self._rows.lease()
            await self._look()
        except MeshError as error:
            self._log.warning("lease not kept", reason=error.reason.name)

    async def _settle(self, rows: Sequence[Row], waiters: Sequence[asyncio.Future[None]]) -> None:
        refused = [row.record_id for row, waiter in zip(rows, waiters, strict=True) if waiter.exception() is not None]
        stored = [row.record_id for row, waiter in zip(rows, waiters, strict=True) if waiter.exception() is None]
        self._metrics.delivered(await self._rows.remove(stored))
        if refused:
            # It stays, for people to look at; the log will not have it however often it is asked.
            await self._rows.refuse(refused)
            self._log.error("records in the outbox refused by the log", record_ids=refused[:20], count=len(refused))
