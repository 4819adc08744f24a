"""The journal of decisions in PostgreSQL, written in the background.

A decision is answered before it is written, so a crash loses those of the last moments: at most `PAUSE_SECONDS` of them while the
database keeps up. The evidence of calls does not rest on this; it is the executor's to record. What does not fit is counted and let go.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import islice

import orjson
from prometheus_client import Counter
from sqlalchemy import func, select, text
from sqlalchemy.exc import DataError
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.errors import MeshError, Reason
from libs.common.sealing import Seal, SealError
from libs.common.sql.engine import separately, transaction
from libs.common.telemetry.log import Log
from services.authz.adapters.postgres.decision_rows import answer_row, hidden_part, question_row, recorded
from services.authz.adapters.postgres.tables import decisions
from services.authz.domain.model import Decision, Fact, Question
from services.authz.domain.policies.model import Recorded

PAUSE_SECONDS = 0.2
KEPT = 1_000_000
_WAITING = 20_000
# Arguments that wait to be sealed.
_WAITING_BYTES = 64 * 1024 * 1024
_BATCH = 500
# How much of arguments one statement carries. Sealed and written as text they are up to four times as much, and there is an end to what the
# database takes at once: beyond it nothing would ever be written again. Others have their turn in between.
_BATCH_BYTES = 4 * 1024 * 1024
_PAGE = 500
_RETRY_SECONDS = 1.0
_LAST_SECONDS = 5.0
_WRITE = text(
    "insert into decisions (decision_id, question, answer, sealed)"
    " select decision_id, question, answer, decode(sealed, 'hex')"
    " from jsonb_to_recordset(cast(:rows as jsonb)) as r(decision_id text, question jsonb, answer jsonb, sealed text)"
    " on conflict do nothing"
)
_TRIM = text("delete from decisions where sequence <= (select coalesce(max(sequence), 0) - :kept from decisions)")

written_total = Counter("toolmesh_authz_decisions_written_total", "Decisions that were written into the journal.")
dropped_total = Counter(
    "toolmesh_authz_decisions_dropped_total", "Decisions that the journal had no room for, or could not keep."
)

_Entry = tuple[Decision, Question, frozenset[Fact] | None]


class DecisionJournal:
    """Keeps the last decisions. Without a seal no arguments are kept."""

    def __init__(
        self, engine: AsyncEngine, log: Log, *, seal: Seal | None, kept: int = KEPT, room: int = _WAITING
    ) -> None:
        self._engine, self._log, self._seal, self._kept, self._room = engine, log, seal, kept, room
        self._waiting: deque[_Entry] = deque()
        self._waiting_bytes = 0
        self._writing = asyncio.Lock()
        self._arrived = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._since_trim = 0
        self._failing = False

    async def start(self) -> None:
        """Begin to write in the background."""
        self._task = asyncio.create_task(self._run(), name="decision-journal")

    async def stop(self) -> None:
        """Write what is waiting, and stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        with suppress(TimeoutError, MeshError):
            async with asyncio.timeout(_LAST_SECONDS):
                await self.flush()

    def record(self, decision: Decision, question: Question, reads: frozenset[Fact] | None) -> None:
        sealing = self._seal is not None and reads is not None and Fact.ARGUMENTS in reads
        size = len(question.call.arguments) if sealing else 0
        if len(self._waiting) >= self._room or self._waiting_bytes + size > _WAITING_BYTES:
            dropped_total.inc()
            return
        if not sealing and (question.call.arguments or question.call.resources):
            # Not even in memory for longer than the call.
            kept = question.call.without_arguments()
            question = Question(question.caller, kept, question.environment, question.moment, question.labels)
        self._waiting.append((decision, question, reads))
        self._waiting_bytes += size
        self._arrived.set()

    async def flush(self) -> None:
        """Return when everything that was recorded until now is written."""
        async with self._writing:
            # What arrives meanwhile waits for company: written as it comes, each decision would be a transaction of its own.
            left = len(self._waiting)
            while left > 0:
                entries = self._first(min(_BATCH, left))
                await self._write(entries)
                left -= len(entries)

    def _first(self, most: int) -> list[_Entry]:
        """Return those that have waited longest: one at least, and as many as one statement carries."""
        entries: list[_Entry] = []
        size = 0
        for entry in islice(self._waiting, most):
            size += len(entry[1].call.arguments)
            if entries and size > _BATCH_BYTES:
                break
            entries.append(entry)
        return entries

    async def find(self, decision_id: str) -> Recorded | None:
        await self.flush()
        query = select(decisions).where(decisions.c.decision_id == decision_id)
        async with separately(self._engine) as connection:
            row = (await connection.execute(query)).one_or_none()
        return None if row is None else self._recorded(row.decision_id, row.question, row.answer, row.sealed)

    async def count(self, most: int) -> int:
        """Return how many decisions there are, up to `most`."""
        await self.flush()
        some = select(decisions.c.sequence).order_by(decisions.c.sequence.desc()).limit(most).subquery()
        async with separately(self._engine) as connection:
            return (await connection.execute(select(func.count()).select_from(some))).scalar_one()

    async def last(self, most: int) -> AsyncIterator[list[Recorded]]:
        """Return the last decisions, newest first, page by page."""
        before: int | None = None
        while most > 0:
            query = select(decisions).order_by(decisions.c.sequence.desc()).limit(min(_PAGE, most))
            if before is not None:
                query = query.where(decisions.c.sequence < before)
            async with separately(self._engine) as connection:
                rows = (await connection.execute(query)).all()
            if not rows:
                return
            yield [self._recorded(row.decision_id, row.question, row.answer, row.sealed) for row in rows]
            before, most = rows[-1].sequence, most - len(rows)

    async def _run(self) -> None:
        while True:
            await self._arrived.wait()
            # More will come in a moment; one statement writes them all.
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
                # One that the database cannot hold must not keep all that come after it from being written.
                for entry in entries:
                    await self._write([entry])
                return
            self._log.error("a decision cannot be kept", decision=entries[0][0].name, why=type(error).__name__)
            dropped_total.inc()
        else:
            written_total.inc(len(entries))
        for _ in entries:
            _, question, _ = self._waiting.popleft()
            self._waiting_bytes -= len(question.call.arguments)

    async def _insert(self, entries: list[_Entry]) -> None:
        rows = orjson.dumps([self._row(*entry) for entry in entries]).decode()
        async with transaction(self._engine) as connection:
            await connection.execute(_WRITE, {"rows": rows})
            self._since_trim += len(entries)
            if self._since_trim >= _BATCH * 10:
                await connection.execute(_TRIM, {"kept": self._kept})
                self._since_trim = 0

    def _row(self, decision: Decision, question: Question, reads: frozenset[Fact] | None) -> dict[str, object]:
        decision_id = decision.name.removeprefix("decisions/")
        sealed = None
        if self._seal is not None and question.call.arguments:
            sealed = self._seal.seal(hidden_part(question), decision_id).hex()
        return {
            "decision_id": decision_id,
            "question": question_row(question, reads),
            "answer": answer_row(decision),
            "sealed": sealed,
        }

    def _recorded(
        self, decision_id: str, question: dict[str, object], answer: dict[str, object], sealed: bytes | None
    ) -> Recorded:
        hidden = None
        if sealed is not None and self._seal is not None:
            # What no longer opens was not kept, as far as anybody can tell.
            with suppress(SealError):
                hidden = self._seal.open(bytes(sealed), decision_id)
        return recorded(decision_id, question, answer, hidden)
