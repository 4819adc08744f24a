"""Transactional outbox in PostgreSQL for outcomes that the audit log did not confirm in time.

A record is durable here before its call is answered, and is delivered when the log is available again. Calls never
reach the outbox while the log is healthy. The process that holds the lease delivers the rows in insertion order and
deletes them once the log has them. Another replica delivers the rows of a killed process. The log stores a record that
is sent twice once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.errors import MeshError
from libs.common.telemetry.log import Log
from services.executor.adapters.audit.outbox_metrics import OutboxMetrics
from services.executor.adapters.audit.outbox_rows import OutboxRow, OutboxRows
from services.executor.adapters.audit.record_encoder import RecordEncoder
from services.executor.adapters.audit.stream import AuditStream, PendingRecord
from services.executor.domain.model import Record

LIMIT = 10_000
LEASE_SECONDS = 10.0
POLL_SECONDS = 3.0


class Outbox:
    """Stores records until the log has them.

    It accepts records beyond its limit; a full outbox refuses new calls instead.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        encoder: RecordEncoder,
        log: Log,
        *,
        owner: str,
        limit: int = LIMIT,
        lease: float = LEASE_SECONDS,
        poll: float = POLL_SECONDS,
    ) -> None:
        self._rows = OutboxRows(engine, owner, lease)
        self._encoder, self._log = encoder, log
        self._limit, self._lease, self._poll = limit, lease, poll
        self._metrics = OutboxMetrics()
        self._depth = 0
        self._pending: list[tuple[str, bytes, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._delivered: set[str] = set()
        self._in_stream: set[str] = set()
        """Records that are also in the stream's queue, so they are not delivered from here."""
        self._due = asyncio.Event()
        self._delivering: asyncio.Task[None] | None = None
        self._stream: AuditStream | None = None

    @property
    def full(self) -> bool:
        """True while the number of waiting records is at its limit."""
        return self._depth >= self._limit

    def attach(self, stream: AuditStream) -> None:
        """Set the stream that delivers the rows."""
        self._stream = stream

    async def start(self) -> None:
        """Start to deliver. Does not wait for the log."""
        self._due.set()
        self._delivering = asyncio.create_task(self._deliver_forever(), name="outbox")

    async def stop(self) -> None:
        """Stop to deliver and release the lease. Records can still be stored."""
        if self._delivering is None:
            return
        self._delivering.cancel()
        await asyncio.wait([self._delivering])
        try:
            await self._rows.release_lease()
        except MeshError as error:
            self._log.warning("outbox lease not released", reason=error.reason.name)

    async def store(self, record: Record, pending: PendingRecord | None) -> None:
        """Store a record and wait for the commit. Raises SERVICE_UNAVAILABLE if the database fails."""
        encoded = self._encoded(record, pending)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # The stream reports only records that it still holds; others are delivered from here.
        if pending is not None and not pending.stored and not pending.refused:
            pending.in_outbox = True
            self._in_stream.add(record.record_id)
        self._pending.append((record.record_id, encoded, done))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_pending(), name="outbox-write")
        await done
        if pending is not None and pending.stored:
            self.mark_settled(record.record_id, True)

    async def store_refused(self, record: Record, pending: PendingRecord | None) -> None:
        """Store a record that the log refused, for inspection. It is not delivered again.

        Raises SERVICE_UNAVAILABLE if the database fails.
        """
        await self._rows.put_refused(record.record_id, self._encoded(record, pending))
        self._due.set()

    async def store_encoded(self, records: Sequence[tuple[str, bytes]]) -> None:
        """Store encoded records and wait for the commit."""
        await self._rows.put(records)

    def mark_settled(self, record_id: str, stored: bool) -> None:
        """Note the log's answer for a record that is both here and in the stream: stored or refused."""
        self._in_stream.discard(record_id)
        if stored:
            self._delivered.add(record_id)
        self._due.set()

    def _encoded(self, record: Record, pending: PendingRecord | None) -> bytes:
        """Return the record in full, also if the stream sends its reduced form."""
        return self._encoder.encode(record) if pending is None or pending.reduced else pending.encoded

    async def _write_pending(self) -> None:
        """Commit all pending records together; records that arrive meanwhile go into the next commit."""
        while self._pending:
            batch, self._pending = self._pending, []
            try:
                await self._rows.put([(record_id, encoded) for record_id, encoded, _ in batch])
            except Exception as error:
                # Any failure must reach the waiters, which would otherwise wait forever.
                for _, _, done in batch:
                    if not done.done():
                        done.set_exception(error)
                continue
            self._depth += len(batch)
            self._metrics.count_stored(len(batch))
            for _, _, done in batch:
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
                await self._delete_delivered()
                while await self._update_depth() and await self._rows.acquire_lease() and await self._deliver_batch():
                    continue
            except Exception as error:
                # The rows are still there, and the next round delivers them.
                self._log.error("outbox not delivered", depth=self._depth, cause=error)
                await asyncio.sleep(self._poll)

    async def _update_depth(self) -> int:
        status = await self._rows.status()
        self._depth = status.waiting
        self._metrics.observe(status)
        return status.waiting

    async def _delete_delivered(self) -> None:
        delivered, self._delivered = self._delivered, set()
        if delivered:
            self._metrics.count_delivered(await self._rows.remove(list(delivered)))

    async def _deliver_batch(self) -> bool:
        """Deliver the oldest rows, renewing the lease for as long as the stream takes."""
        oldest = await self._rows.oldest()
        elsewhere = self._in_stream | self._delivered
        rows = [row for row in oldest if row.record_id not in elsewhere]
        if not rows or self._stream is None:
            return False
        waiters = self._stream.enqueue_encoded([(row.record_id, row.fragment) for row in rows])
        waiting: set[asyncio.Future[None]] = set(waiters)
        while waiting:
            _, waiting = await asyncio.wait(waiting, timeout=self._lease / 3)
            if waiting:
                await self._renew_lease()
        await self._settle(rows, waiters)
        return True

    async def _renew_lease(self) -> None:
        """Renew the lease. Losing it is harmless: the log stores a record that is delivered twice once."""
        try:
            await self._rows.acquire_lease()
            await self._update_depth()
        except MeshError as error:
            self._log.warning("outbox lease not renewed", reason=error.reason.name)

    async def _settle(self, rows: Sequence[OutboxRow], waiters: Sequence[asyncio.Future[None]]) -> None:
        refused = [row.record_id for row, waiter in zip(rows, waiters, strict=True) if waiter.exception() is not None]
        stored = [row.record_id for row, waiter in zip(rows, waiters, strict=True) if waiter.exception() is None]
        self._metrics.count_delivered(await self._rows.remove(stored))
        if refused:
            # Kept for inspection: the log refuses them every time.
            await self._rows.mark_refused(refused)
            self._log.error("records in the outbox refused by the log", record_ids=refused[:20], count=len(refused))
