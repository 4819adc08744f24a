"""A transactional outbox of administrative acts.

The statement of `ActRecorder.insertion` runs in the transaction of the change itself, so an act is recorded if and only
if its change is, also if the process is killed between two writes. `ActDelivery` sends the rows to the audit log in
order and deletes those that the log has. The log stores a record that is sent twice once.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc.aio
from prometheus_client import Counter, Gauge
from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Identity,
    Insert,
    LargeBinary,
    MetaData,
    Table,
    Text,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy import text as sql
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from toolmesh.audit.v1 import audit_service_pb2 as pb
from toolmesh.audit.v1 import audit_service_pb2_grpc as rpc

from libs.audit_client.act import Act, ActEncoder
from libs.common.errors import MeshError, Reason
from libs.common.runtime.backoff import Backoff
from libs.common.sql.engine import separately, transaction
from libs.common.telemetry.log import Log

LIMIT = 10_000
POLL_SECONDS = 2.0
# Lets the transaction of an act commit, and acts that arrive together share a batch.
SETTLE_SECONDS = 0.02
BATCH_RECORDS = 100
ACK_SECONDS = 10.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 5.0
# One process delivers at a time, so the order of the rows is kept. The lock ends with the transaction or the process.
_TRY_LOCK = sql("select pg_try_advisory_xact_lock(hashtextextended('toolmesh act outbox ' || current_schema(), 0))")

act_outbox = Table(
    "act_outbox",
    MetaData(),
    Column("sequence", BigInteger, Identity(always=True), primary_key=True),
    Column("record_id", Text, nullable=False, unique=True),
    Column("form", LargeBinary, nullable=False),
    Column("create_time", DateTime(timezone=True), nullable=False, server_default=func.now()),
    Column("refuse_time", DateTime(timezone=True)),
)

_depth = Gauge("toolmesh_act_outbox_depth", "Administrative acts that wait for delivery to the log.")
_delivered = Counter("toolmesh_act_outbox_delivered_total", "Administrative acts that were delivered to the log.")
_refused = Counter("toolmesh_act_outbox_refused_total", "Administrative acts that the log refused.")


class ActRecorder:
    """Makes the statements that record acts. One per process, shared by its stores."""

    def __init__(self, encoder: ActEncoder) -> None:
        self._encoder = encoder
        self.due = asyncio.Event()
        """Set when an act waits for delivery."""
        self.full = False
        """True while too many acts wait for delivery."""

    def insertion(self, act: Act) -> Insert:
        """Return the statement that records an act. The caller executes it in the transaction of the change."""
        return insert(act_outbox).values(self.row(act))

    def row(self, act: Act) -> dict[str, Any]:
        """Return the row of an act, for a statement of the caller's own."""
        record_id, form = self._encoder.encode(act)
        self.due.set()
        return {"record_id": record_id, "form": form}

    def admit(self) -> None:
        """Raise AUDIT_BACKPRESSURE while too many acts wait. Not for acts that take authority away: those never wait
        for the log."""
        if self.full:
            raise MeshError(Reason.AUDIT_BACKPRESSURE, retry_after=5.0)


class ActDelivery:
    """Delivers recorded acts to the audit log, in the order of their rows."""

    def __init__(
        self,
        engine: AsyncEngine,
        recorder: ActRecorder,
        channel: grpc.aio.Channel,
        log: Log,
        *,
        limit: int = LIMIT,
        poll: float = POLL_SECONDS,
    ) -> None:
        self._engine, self._recorder, self._channel, self._log = engine, recorder, channel, log
        self._limit, self._poll = limit, poll
        self._append: Any = rpc.AuditServiceStub(channel).AppendRecords
        self._backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start to deliver. Does not wait for the log."""
        self._task = asyncio.create_task(self._run(), name="act-delivery")

    async def stop(self) -> None:
        """Stop. Rows that are not delivered stay for the next process."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        while True:
            try:
                while await self._deliver_batch():
                    continue
                self._backoff.reset()
                await self._wait_due()
            except Exception as error:
                # The rows are still there, and the next round delivers them.
                await self._report_failure(error)
                await self._backoff.wait()

    async def _wait_due(self) -> None:
        try:
            async with asyncio.timeout(self._poll):
                await self._recorder.due.wait()
        except TimeoutError:
            return
        self._recorder.due.clear()
        await asyncio.sleep(SETTLE_SECONDS)

    async def _deliver_batch(self) -> bool:
        """Deliver the oldest rows; return whether there were any."""
        if not await self._depth():
            return False
        async with asyncio.timeout(ACK_SECONDS):
            # Before the transaction, which must not stay open while the log is away.
            await self._channel.channel_ready()
        async with asyncio.timeout(2 * ACK_SECONDS), transaction(self._engine) as connection:
            if not await connection.scalar(_TRY_LOCK):
                return False
            waiting = select(act_outbox).where(act_outbox.c.refuse_time.is_(None)).order_by(act_outbox.c.sequence)
            rows = (await connection.execute(waiting.limit(BATCH_RECORDS))).all()
            if rows:
                await self._settle(connection, [row.sequence for row in rows], await self._send([r.form for r in rows]))
        return bool(rows)

    async def _send(self, forms: list[bytes]) -> list[pb.RecordRefusal]:
        """Return the refusals once the log has all other records."""
        call = self._append(timeout=ACK_SECONDS)
        await call.write(pb.AppendRecordsRequest(batch=1, canonical_records=forms, return_partial_success=True))
        await call.done_writing()
        answer = await call.read()
        if answer is grpc.aio.EOF:
            raise MeshError(Reason.AUDIT_UNAVAILABLE)
        return list(answer.refused)

    async def _settle(
        self, connection: AsyncConnection, sequences: list[int], refusals: list[pb.RecordRefusal]
    ) -> None:
        refused = [sequences[refusal.index] for refusal in refusals]
        stored = set(sequences) - set(refused)
        await connection.execute(delete(act_outbox).where(act_outbox.c.sequence.in_(stored)))
        _delivered.inc(len(stored))
        for refusal in refusals:
            # Kept for inspection: the log refuses it every time.
            self._log.error("act refused by the log", record_id=refusal.record_id, path=refusal.path, rule=refusal.rule)
        if refused:
            marked = update(act_outbox).where(act_outbox.c.sequence.in_(refused))
            await connection.execute(marked.values(refuse_time=func.now()))
            _refused.inc(len(refused))

    async def _depth(self) -> int:
        # Counting stops at the limit, so that a long outage does not make each round slower.
        waiting = select(act_outbox.c.sequence).where(act_outbox.c.refuse_time.is_(None)).limit(self._limit)
        async with separately(self._engine) as connection:
            count = int(await connection.scalar(select(func.count()).select_from(waiting.subquery())) or 0)
        self._recorder.full = count >= self._limit
        _depth.set(count)
        return count

    async def _report_failure(self, error: Exception) -> None:
        if isinstance(error, grpc.aio.AioRpcError):
            self._log.warning("acts not delivered", code=error.code().name)
        elif isinstance(error, TimeoutError):
            self._log.warning("acts not delivered", code="DEADLINE_EXCEEDED")
        else:
            self._log.error("acts not delivered", cause=error)
