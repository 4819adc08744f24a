"""The journal of decisions in PostgreSQL, written in the background.

A decision is returned before it is written, so a crash loses the last `PAUSE_SECONDS` of decisions, more if the
database is slow. The audit log does not depend on the journal; the executor records calls. Decisions that do not fit
into the queue are counted and dropped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from itertools import islice

import orjson
from msgspec.structs import replace
from prometheus_client import Counter
from sqlalchemy import func, select, text
from sqlalchemy.exc import DataError
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.errors import MeshError, Reason
from libs.common.runtime.clock import Clock
from libs.common.sealing import Seal, SealError
from libs.common.sql.engine import separately, transaction
from libs.common.telemetry.log import Log
from services.authz.adapters.postgres.decision_rows import decision_row, hidden_part, recorded, request_row
from services.authz.adapters.postgres.tables import decisions
from services.authz.domain.model import ContextField, Decision, DecisionRequest
from services.authz.domain.policies.model import RecordedDecision

PAUSE_SECONDS = 0.2
MAX_DECISIONS = 1_000_000
_QUEUE_SIZE = 20_000
# Unsealed arguments in the queue.
_QUEUE_BYTES = 64 * 1024 * 1024
_BATCH = 500
# Arguments that no policy of the time read are stored up to this size: a rule that is added later may read them.
UNREAD_BYTES = 16 * 1024
_FORGET_SECONDS = 3600.0
# Bytes of arguments in one statement. Sealed and hex-encoded they are up to four times as large, and PostgreSQL limits
# the size of a parameter: a larger batch could never be written.
_BATCH_BYTES = 4 * 1024 * 1024
_PAGE = 500
_RETRY_SECONDS = 1.0
_STOP_SECONDS = 5.0
_WRITE = text(
    "insert into decisions (decision_id, question, answer, sealed)"
    " select decision_id, question, answer, decode(sealed, 'hex')"
    " from jsonb_to_recordset(cast(:rows as jsonb)) as r(decision_id text, question jsonb, answer jsonb, sealed text)"
    " on conflict do nothing"
)
_FORGET = text(
    "update decisions set sealed = null where sealed is not null and (answer->>'decide_time')::float8 < :before"
)
_TRIM = text("delete from decisions where sequence <= (select coalesce(max(sequence), 0) - :kept from decisions)")

written_total = Counter("toolmesh_authz_decisions_written_total", "Decisions that were written to the journal.")
dropped_total = Counter(
    "toolmesh_authz_decisions_dropped_total", "Decisions that did not fit into the queue or could not be stored."
)

_Entry = tuple[Decision, DecisionRequest, frozenset[ContextField] | None]


class DecisionJournal:
    """Stores the last decisions, and their arguments for some days. Without a seal no arguments are stored."""

    def __init__(
        self,
        engine: AsyncEngine,
        log: Log,
        *,
        seal: Seal | None,
        clock: Clock,
        retention: timedelta = timedelta(days=30),
        max_decisions: int = MAX_DECISIONS,
        queue_size: int = _QUEUE_SIZE,
    ) -> None:
        self._engine, self._log, self._seal = engine, log, seal
        self._clock, self._retention = clock, retention
        self._max_decisions, self._queue_size = max_decisions, queue_size
        self._queue: deque[_Entry] = deque()
        self._queue_bytes = 0
        self._writing = asyncio.Lock()
        self._arrived = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._since_trim = 0
        self._failing = False

    async def start(self) -> None:
        """Start writing, and forgetting old arguments, in the background."""
        self._tasks = [
            asyncio.create_task(self._run(), name="decision-journal"),
            asyncio.create_task(self._forget_regularly(), name="decision-journal-retention"),
        ]

    async def stop(self) -> None:
        """Stop, after the queue is written or _STOP_SECONDS are over."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        with suppress(TimeoutError, MeshError):
            async with asyncio.timeout(_STOP_SECONDS):
                await self.flush()

    def record(
        self, decision: Decision, request: DecisionRequest, context_fields: frozenset[ContextField] | None
    ) -> None:
        read = context_fields is not None and ContextField.ARGUMENTS in context_fields
        sealing = self._seal is not None and (read or self._has_room_for_unread(request, context_fields))
        size = len(request.call.arguments) if sealing else 0
        if len(self._queue) >= self._queue_size or self._queue_bytes + size > _QUEUE_BYTES:
            dropped_total.inc()
            return
        if not sealing and (request.call.arguments or request.call.resources):
            # Unsealed arguments must not stay in memory after the call either.
            call = request.call.without_arguments()
            request = replace(request, call=call)
        self._queue.append((decision, request, context_fields))
        self._queue_bytes += size
        self._arrived.set()

    def _has_room_for_unread(self, request: DecisionRequest, context_fields: frozenset[ContextField] | None) -> bool:
        """Return whether arguments that no policy read are kept. Where the token alone decided, no policy ever reads
        them; and they take only half of the queue, so that they displace no decision."""
        size = len(request.call.arguments)
        return context_fields is not None and size <= UNREAD_BYTES and self._queue_bytes + size <= _QUEUE_BYTES // 2

    async def forget(self) -> None:
        """Delete the arguments of decisions that are older than the retention."""
        before = (self._clock.now() - self._retention).timestamp()
        async with transaction(self._engine) as connection:
            await connection.execute(_FORGET, {"before": before})

    async def _forget_regularly(self) -> None:
        while True:
            try:
                await self.forget()
            except MeshError as error:
                self._log.error("old arguments cannot be deleted", cause=error)
            await asyncio.sleep(_FORGET_SECONDS)

    async def flush(self) -> None:
        """Write all decisions that were recorded until now."""
        async with self._writing:
            # Decisions that arrive meanwhile wait for the next flush, so that they are written in batches.
            left = len(self._queue)
            while left > 0:
                entries = self._next_batch(min(_BATCH, left))
                await self._write(entries)
                left -= len(entries)

    def _next_batch(self, limit: int) -> list[_Entry]:
        """Return the oldest entries that fit into one statement, at least one."""
        entries: list[_Entry] = []
        size = 0
        for entry in islice(self._queue, limit):
            size += len(entry[1].call.arguments)
            if entries and size > _BATCH_BYTES:
                break
            entries.append(entry)
        return entries

    async def find(self, decision_id: str) -> RecordedDecision | None:
        await self.flush()
        query = select(decisions).where(decisions.c.decision_id == decision_id)
        async with separately(self._engine) as connection:
            row = (await connection.execute(query)).one_or_none()
        return None if row is None else self._recorded(row.decision_id, row.question, row.answer, row.sealed)

    async def count(self, limit: int) -> int:
        await self.flush()
        newest = select(decisions.c.sequence).order_by(decisions.c.sequence.desc()).limit(limit).subquery()
        async with separately(self._engine) as connection:
            return (await connection.execute(select(func.count()).select_from(newest))).scalar_one()

    async def last(self, limit: int) -> AsyncIterator[list[RecordedDecision]]:
        before: int | None = None
        while limit > 0:
            query = select(decisions).order_by(decisions.c.sequence.desc()).limit(min(_PAGE, limit))
            if before is not None:
                query = query.where(decisions.c.sequence < before)
            async with separately(self._engine) as connection:
                rows = (await connection.execute(query)).all()
            if not rows:
                return
            yield [self._recorded(row.decision_id, row.question, row.answer, row.sealed) for row in rows]
            before, limit = rows[-1].sequence, limit - len(rows)

    async def _run(self) -> None:
        while True:
            await self._arrived.wait()
            # The pause collects more decisions for one statement.
            await asyncio.sleep(PAUSE_SECONDS)
            self._arrived.clear()
            try:
                await self.flush()
                self._failing = False
            except Exception as error:
                if not self._failing:
                    self._log.error("decisions cannot be written", cause=error)
                self._failing = True
                self._arrived.set()
                await asyncio.sleep(_RETRY_SECONDS)

    async def _write(self, entries: list[_Entry]) -> None:
        try:
            await self._insert(entries)
        except (MeshError, DataError) as error:
            if isinstance(error, MeshError) and error.reason is not Reason.INVALID_REQUEST:
                raise
            if len(entries) > 1:
                # A decision that cannot be stored must not block the others, so they are written one by one.
                for entry in entries:
                    await self._write([entry])
                return
            self._log.error("decision cannot be stored", decision=entries[0][0].name, why=type(error).__name__)
            dropped_total.inc()
        else:
            written_total.inc(len(entries))
        for _ in entries:
            _, request, _ = self._queue.popleft()
            self._queue_bytes -= len(request.call.arguments)

    async def _insert(self, entries: list[_Entry]) -> None:
        rows = orjson.dumps([self._row(*entry) for entry in entries]).decode()
        async with transaction(self._engine) as connection:
            await connection.execute(_WRITE, {"rows": rows})
            self._since_trim += len(entries)
            if self._since_trim >= _BATCH * 10:
                await connection.execute(_TRIM, {"kept": self._max_decisions})
                self._since_trim = 0

    def _row(
        self, decision: Decision, request: DecisionRequest, context_fields: frozenset[ContextField] | None
    ) -> dict[str, object]:
        decision_id = decision.name.removeprefix("decisions/")
        sealed = None
        if self._seal is not None and request.call.arguments:
            sealed = self._seal.seal(hidden_part(request), decision_id).hex()
        return {
            "decision_id": decision_id,
            "question": request_row(request, context_fields),
            "answer": decision_row(decision),
            "sealed": sealed,
        }

    def _recorded(
        self, decision_id: str, request: dict[str, object], answer: dict[str, object], sealed: bytes | None
    ) -> RecordedDecision:
        hidden = None
        if sealed is not None and self._seal is not None:
            # Arguments whose key is gone count as not stored.
            with suppress(SealError):
                hidden = self._seal.open(bytes(sealed), decision_id)
        return recorded(decision_id, request, answer, hidden)
