"""Counts usage in PostgreSQL. A counting transaction locks the row of the position: counts and position change
together, and other replicas skip the locked row.

Transactions follow each other while the log grows, so their statements go to the driver directly: SQLAlchemy costs
several times as much as a statement that finds five cells. Cells are written as JSON, a few hundred at a time, for a
fifth of the cost of row parameters.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import date
from itertools import islice
from typing import Any

import orjson
import psycopg
from psycopg.rows import namedtuple_row
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.errors import MeshError, Reason
from libs.common.sql.engine import separately
from services.audit import metrics
from services.audit.adapters.usage_tables import DIMENSION_COLUMNS, TALLY_COLUMNS, cell_digest, cell_row, row_to_tally
from services.audit.domain.log.append_buffer import AppendBuffer
from services.audit.domain.log.yield_every import yield_every
from services.audit.domain.usage.call import DecodedRecord, LogSegment, Outcome, decode_fields
from services.audit.domain.usage.cells import Cell, Rollup
from services.audit.domain.usage.tally import Tally

SEGMENT_RECORDS = 2000
SEGMENT_BYTES = 4 * 1024 * 1024

_CHUNK = 400
_TALLY_NAMES = [column.name for column in TALLY_COLUMNS]
# A crash of the database may undo a commit; its records are then counted again, so the commit need not wait for the
# disk. The size is read before the lock is taken, so everything below it is visible to later statements.
_LOCK_POSITION = """
select counted, (select size from tree_head), set_config('synchronous_commit', 'off', true)
from usage_position for update skip locked
"""
_FIRST_SEQUENCE = "select min(sequence) from records where sequence >= %s and sequence < %s"
# Records that may end a call all have a status. Limited by the bytes that one segment may hold in memory.
_READ_RECORDS = """
select sequence, canonical, log_time, matching
from (
    select sequence, canonical, log_time, count(*) over () as matching,
        sum(octet_length(canonical)) over (order by sequence rows between unbounded preceding and 1 preceding) as before
    from records where sequence >= %s and sequence < %s and status is not null
) as weighed
where coalesce(before, 0) < %s order by sequence
"""
_FIND_CELLS = f"""
select rollup, day, {", ".join((*DIMENSION_COLUMNS, *_TALLY_NAMES))} from usage_cells
where (day, cell) in (select unnest(%s::date[]), unnest(%s::bytea[]))
"""  # noqa: S608  (names of this module)
_FIND_SIZES = """
select rollup, day, cells from usage_pages where (rollup, day) in (select unnest(%s::text[]), unnest(%s::date[]))
"""
_UPSERT_CELLS = f"""
insert into usage_cells (day, cell, rollup, {", ".join((*DIMENSION_COLUMNS, *_TALLY_NAMES))})
select day, decode(cell, 'base64'), rollup, {", ".join(DIMENSION_COLUMNS)}, {", ".join(Outcome)},
    reasons, cost_micros, timed, latency_sum_us, latency_max_us, decode(latency, 'base64'), first_time, last_time
from json_to_recordset(%s::json) as row (
    day date, cell text, rollup text, {" text, ".join(DIMENSION_COLUMNS)} text,
    {" bigint, ".join(Outcome)} bigint, reasons jsonb, cost_micros numeric, timed bigint,
    latency_sum_us numeric, latency_max_us bigint, latency text, first_time timestamptz, last_time timestamptz
)
on conflict (day, cell) do update set {", ".join(f"{name} = excluded.{name}" for name in _TALLY_NAMES)}
"""  # noqa: S608  (names of this module)
_UPSERT_SIZES = """
insert into usage_pages (rollup, day, cells) select * from unnest(%s::text[], %s::date[], %s::int[])
on conflict (rollup, day) do update set cells = excluded.cells
"""
_MOVE_POSITION = "update usage_position set counted = %s"


class PostgresUsageStore:
    """Implements UsageStore."""

    def __init__(
        self, engine: AsyncEngine, *, buffer: AppendBuffer | None = None, records: int = SEGMENT_RECORDS
    ) -> None:
        self._engine, self._buffer, self._records = engine, buffer or AppendBuffer(), records

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[PostgresCountingTransaction | None]:
        """Implement `UsageStore.begin`."""
        async with _transaction(self._engine) as cursor:
            row = await (await cursor.execute(_LOCK_POSITION)).fetchone()
            counting = row and PostgresCountingTransaction(cursor, self._buffer, row.counted, row.size, self._records)
            yield counting
        if counting is not None:
            metrics.usage_records_total.inc(counting.counted)
            metrics.usage_records_behind.set(counting.behind)


class PostgresCountingTransaction:
    """Implements CountingTransaction."""

    def __init__(
        self, cursor: psycopg.AsyncCursor[Any], buffer: AppendBuffer, position: int, size: int, limit: int
    ) -> None:
        self._cursor, self._buffer, self._position, self._limit = cursor, buffer, position, limit
        # Another replica may have counted past the size between reading it and taking the lock.
        self._size = max(size, position)
        self.counted = self.behind = 0

    async def read_segment(self) -> LogSegment:
        """Implement `CountingTransaction.read_segment`. Records of shards that were archived before counting are
        skipped."""
        if self._buffer.covers(self._position, self._size):
            end = min(self._position + self._limit, self._size)
            records = await self._read_buffered(end)
        else:
            end, records = await self._read_log()
        self.behind = self._size - end
        return LogSegment(self._position, end, records, more=end < self._size)

    async def _read_buffered(self, end: int) -> list[DecodedRecord]:
        """Return the next records from the append buffer."""
        slices = self._buffer.slices(self._position, end)
        # Records that may end a call have a status.
        final = ((commit, index) for commit, indexes in slices for index in indexes if commit.entries[index].status)
        return [
            DecodedRecord(
                commit.first_sequence + index, decode_fields(commit.entries[index].canonical), commit.log_time
            )
            async for commit, index in yield_every(final)
        ]

    async def _read_log(self) -> tuple[int, list[DecodedRecord]]:
        """Return the next records from the log, and the sequence after them."""
        await self._cursor.execute(_FIRST_SEQUENCE, (self._position, self._size))
        first = (await self._cursor.fetchall())[0].min
        if first is None:
            return self._size, []
        end = min(first + self._limit, self._size)
        rows = await self._rows(_READ_RECORDS, first, end, SEGMENT_BYTES)
        if rows and rows[0].matching > len(rows):
            end = rows[-1].sequence + 1
        return end, [_decode_row(row) async for row in yield_every(rows)]

    async def find_tallies(self, cells: Iterable[Cell]) -> dict[Cell, Tally]:
        """Implement `CountingTransaction.find_tallies`."""
        tallies: dict[Cell, Tally] = {}
        for chunk in _chunks(cells):
            digests = [cell_digest(cell) async for cell in yield_every(chunk)]
            async for row in yield_every(await self._rows(_FIND_CELLS, [cell.day for cell in chunk], digests)):
                tallies[Cell(Rollup(row.rollup), row.day, *row[2:7])] = row_to_tally(row)
        return tallies

    async def count_cells(self, rollup_days: Iterable[tuple[Rollup, date]]) -> dict[tuple[Rollup, date], int]:
        """Implement `CountingTransaction.count_cells`."""
        rollups, days = _columns(rollup_days)
        return {(Rollup(row.rollup), row.day): row.cells for row in await self._rows(_FIND_SIZES, rollups, days)}

    async def save(
        self, tallies: Mapping[Cell, Tally], sizes: Mapping[tuple[Rollup, date], int], position: int
    ) -> None:
        """Implement `CountingTransaction.save`."""
        for chunk in _chunks(tallies.items()):
            rows = [cell_row(cell, tally) async for cell, tally in yield_every(chunk)]
            await self._cursor.execute(_UPSERT_CELLS, (orjson.dumps(rows).decode(),))
        if sizes:
            await self._cursor.execute(_UPSERT_SIZES, (*_columns(sizes), list(sizes.values())))
        await self._cursor.execute(_MOVE_POSITION, (position,))
        self.counted = position - self._position

    async def _rows(self, statement: str, *parameters: Any) -> list[Any]:
        return await (await self._cursor.execute(statement, parameters)).fetchall()


@asynccontextmanager
async def _transaction(engine: AsyncEngine) -> AsyncIterator[psycopg.AsyncCursor[Any]]:
    """Run a block in a transaction of the driver, with the errors of libs.common.sql."""
    async with separately(engine) as connection:
        driver: Any = (await connection.get_raw_connection()).driver_connection
        try:
            # Binary, because text format doubles the size of bytes.
            async with driver.transaction(), driver.cursor(binary=True, row_factory=namedtuple_row) as cursor:
                yield cursor
        except psycopg.OperationalError as error:
            raise MeshError(Reason.SERVICE_UNAVAILABLE, retry_after=1.0) from error


def _decode_row(row: Any) -> DecodedRecord:
    return DecodedRecord(row.sequence, None if row.canonical is None else decode_fields(row.canonical), row.log_time)


def _columns(rollup_days: Iterable[tuple[Rollup, date]]) -> tuple[list[str], list[date]]:
    pairs = list(rollup_days)
    return [rollup.value for rollup, _ in pairs], [day for _, day in pairs]


def _chunks(items: Iterable[Any]) -> Iterable[Sequence[Any]]:
    rest = iter(items)
    while chunk := list(islice(rest, _CHUNK)):
        yield chunk
