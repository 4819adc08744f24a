"""Counting in PostgreSQL. A turn is a transaction that holds the row of the position: the counts and the position move
together or not at all, and whoever does not get the row waits for another turn.

Cells are written as one JSON text a few hundred at a time, which costs this process a fifth of what as many rows of
parameters would.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import date
from itertools import islice
from typing import Any

import orjson
from sqlalchemy import ARRAY, Date, LargeBinary, and_, bindparam, func, select, text, tuple_, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from libs.common.sql.engine import transaction
from services.audit import metrics
from services.audit.adapters.tables import records, tree_head
from services.audit.adapters.usage_tables import (
    KEPT_APART,
    TALLY_COLUMNS,
    cell_digest,
    cell_row,
    tally_of,
    usage_cells,
    usage_pages,
    usage_position,
)
from services.audit.domain.recent import Recent
from services.audit.domain.slices import in_slices
from services.audit.domain.usage.call import Evidence, Outcome, Stretch
from services.audit.domain.usage.cells import Cell, Rollup
from services.audit.domain.usage.tally import Tally

TURN_RECORDS = 2000
TURN_BYTES = 4 * 1024 * 1024

_AT_ONCE = 400
_SIZE = select(tree_head.c.size)
_CHANGING = [column.name for column in TALLY_COLUMNS]
_KEEP = text(
    f"""
    insert into usage_cells (day, cell, rollup, {", ".join((*KEPT_APART, *_CHANGING))})
    select day, decode(cell, 'base64'), rollup, {", ".join(KEPT_APART)}, {", ".join(Outcome)}, reasons, cost_micros, timed,
        latency_sum_us, latency_max_us, decode(latency, 'base64'), first_time, last_time
    from json_to_recordset(cast(:rows as json)) as row (
        day date, cell text, rollup text, {" text, ".join(KEPT_APART)} text, {" bigint, ".join(Outcome)} bigint, reasons jsonb,
        cost_micros numeric, timed bigint, latency_sum_us numeric, latency_max_us bigint, latency text,
        first_time timestamptz, last_time timestamptz
    )
    on conflict (day, cell) do update set {", ".join(f"{name} = excluded.{name}" for name in _CHANGING)}
    """  # noqa: S608  (names of this module)
)
_FIND = select(
    usage_cells.c.rollup, usage_cells.c.day, *(usage_cells.c[name] for name in KEPT_APART), *TALLY_COLUMNS
).where(
    tuple_(usage_cells.c.day, usage_cells.c.cell).in_(
        select(
            func.unnest(bindparam("days", type_=ARRAY(Date))), func.unnest(bindparam("cells", type_=ARRAY(LargeBinary)))
        )
    )
)


class PostgresBook:
    """The counts of one database."""

    def __init__(self, engine: AsyncEngine, *, recent: Recent | None = None, records: int = TURN_RECORDS) -> None:
        self._engine, self._recent, self._records = engine, recent or Recent(), records

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[PostgresTurn | None]:
        """Keep the promise of the port."""
        turn = None
        async with transaction(self._engine) as connection:
            # What a crash of the database takes back is counted again, so no append needs to share its disk with this.
            await connection.execute(text("set local synchronous_commit = off"))
            held = select(usage_position.c.counted).with_for_update(skip_locked=True)
            position = (await connection.execute(held)).scalar()
            turn = None if position is None else PostgresTurn(connection, self._recent, position, self._records)
            yield turn
        if turn is not None:
            metrics.usage_records_total.inc(turn.counted)
            metrics.usage_records_behind.set(turn.behind)


class PostgresTurn:
    """One transaction of counting."""

    def __init__(self, connection: AsyncConnection, recent: Recent, position: int, limit: int) -> None:
        self._connection, self._recent, self._position, self._limit = connection, recent, position, limit
        self.counted = self.behind = 0

    async def stretch(self) -> Stretch:
        """Keep the promise of the port. What lies in a shard that was archived before it was counted is passed over."""
        # The size is read first: whatever is below it can be seen by everything that is asked afterwards.
        size = (await self._connection.execute(_SIZE)).scalar_one()
        if self._recent.holds(self._position, size):
            return await self._remembered(size)
        ahead = and_(records.c.sequence >= self._position, records.c.sequence < size)
        first = (await self._connection.execute(select(func.min(records.c.sequence)).where(ahead))).scalar()
        if first is None:
            return Stretch(self._position, size, [])
        end = min(first + self._limit, size)
        rows = (await self._connection.execute(_weighed(first, end))).all()
        if rows and rows[0].matching > len(rows):
            end = rows[-1].sequence + 1
        self.behind = size - end
        evidence = [_evidence(row) async for row in in_slices(rows)]
        return Stretch(self._position, end, evidence, more=end < size)

    async def _remembered(self, size: int) -> Stretch:
        """Return the next records from memory, where all of them still are."""
        end = min(self._position + self._limit, size)
        self.behind = size - end
        parts = self._recent.between(self._position, end)
        # Those that may end a call have a status.
        ended = ((stored, place) for stored, places in parts for place in places if stored.entries[place].status)
        evidence = [
            Evidence(stored.first_sequence + place, orjson.loads(stored.entries[place].canonical), stored.log_time)
            async for stored, place in in_slices(ended)
        ]
        return Stretch(self._position, end, evidence, more=end < size)

    async def tallies(self, cells: Iterable[Cell]) -> dict[Cell, Tally]:
        """Keep the promise of the port."""
        found: dict[Cell, Tally] = {}
        for part in _parts(cells):
            digests = [cell_digest(cell) async for cell in in_slices(part)]
            asked = {"days": [cell.day for cell in part], "cells": digests}
            async for row in in_slices((await self._connection.execute(_FIND, asked)).all()):
                found[Cell(Rollup(row.rollup), row.day, *row[2:7])] = tally_of(row)
        return found

    async def sizes(self, pages: Iterable[tuple[Rollup, date]]) -> dict[tuple[Rollup, date], int]:
        """Keep the promise of the port."""
        wanted = [(rollup.value, day) for rollup, day in pages]
        rows = select(usage_pages).where(tuple_(usage_pages.c.rollup, usage_pages.c.day).in_(wanted))
        return {(Rollup(row.rollup), row.day): row.cells for row in await self._connection.execute(rows)}

    async def keep(
        self, tallies: Mapping[Cell, Tally], sizes: Mapping[tuple[Rollup, date], int], position: int
    ) -> None:
        """Keep the promise of the port."""
        for part in _parts(tallies.items()):
            rows = [cell_row(cell, tally) async for cell, tally in in_slices(part)]
            await self._connection.execute(_KEEP, {"rows": orjson.dumps(rows).decode()})
        if sizes:
            pages = [{"rollup": rollup.value, "day": day, "cells": cells} for (rollup, day), cells in sizes.items()]
            await self._connection.execute(_replace_pages(), pages)
        await self._connection.execute(update(usage_position).values(counted=position))
        self.counted = position - self._position


def _weighed(first: int, end: int) -> Any:
    """Records that may end a call, which all have a status, up to the weight that one turn may hold in memory."""
    within = and_(records.c.sequence >= first, records.c.sequence < end, records.c.status.is_not(None))
    candidates = select(records.c.sequence, records.c.canonical, records.c.log_time).where(within).subquery()
    weight = func.coalesce(func.octet_length(candidates.c.canonical), 0)
    weighed = select(
        candidates,
        (func.sum(weight).over(order_by=candidates.c.sequence) - weight).label("before"),
        func.count().over().label("matching"),
    ).subquery()
    return select(weighed).where(weighed.c.before < TURN_BYTES).order_by(weighed.c.sequence)


def _evidence(row: Any) -> Evidence:
    form = None if row.canonical is None else orjson.loads(bytes(row.canonical))
    return Evidence(row.sequence, form, row.log_time)


def _replace_pages() -> Any:
    statement = insert(usage_pages)
    return statement.on_conflict_do_update(index_elements=["rollup", "day"], set_={"cells": statement.excluded.cells})


def _parts(items: Iterable[Any]) -> Iterable[Sequence[Any]]:
    rest = iter(items)
    while part := list(islice(rest, _AT_ONCE)):
        yield part
