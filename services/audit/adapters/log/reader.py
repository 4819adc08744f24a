"""The log as its readers see it, from PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
from sqlalchemy import ColumnElement, Row, Select, and_, case, func, select
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.sql.engine import separately
from services.audit.adapters.tables import erasures, records, shard_at, tree_head
from services.audit.domain.merkle.merkle import CompactRange
from services.audit.domain.model import LoggedRecord, Page, RecordFilter, Span, TreeHead

# A record travels as bytes and as fields, so a message holds about twice this; the limit of a message is 4 MiB.
PAGE_BYTES = 1024 * 1024

_log_id = select(tree_head.c.log_id).scalar_subquery()
_erased_by = select(erasures.c.erased_by).where(erasures.c.sequence == records.c.sequence).scalar_subquery()
_logged_records = select(
    _log_id.label("log_id"),
    records.c.sequence,
    records.c.canonical,
    records.c.leaf_hash,
    records.c.log_time,
    records.c.shard,
    case((records.c.canonical.is_(None), _erased_by)).label("erased_by"),
)


class PostgresReader:
    """Reads what is committed. Commits are ordered by the head's row, so no snapshot ever shows a gap."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def head(self) -> TreeHead:
        """Keep the promise of the port."""
        [row] = await self._rows(select(tree_head))
        tree = CompactRange(row.size - row.first_sequence, tuple(bytes(node) for node in row.hashes))
        return TreeHead(row.log_id, tree, row.shard, row.first_sequence, row.open_time)

    async def get_by_sequence(self, log_id: str, sequence: int) -> LoggedRecord | None:
        """Keep the promise of the port."""
        place = and_(records.c.shard == shard_at(sequence), records.c.sequence == sequence)
        return await self._one(and_(place, _log_id == log_id))

    async def get_by_record_id(self, record_id: str) -> LoggedRecord | None:
        """Keep the promise of the port."""
        return await self._one(records.c.record_id == record_id)

    async def page(self, wanted: RecordFilter, span: Span, limit: int) -> Page:
        """Keep the promise of the port."""
        rows = await self._rows(_page_statement(wanted, span, limit))
        found = [_logged(row) for row in rows[:limit]]
        return Page(found, more=bool(rows) and rows[0].matching > len(found))

    async def _one(self, condition: ColumnElement[bool]) -> LoggedRecord | None:
        rows = await self._rows(_logged_records.where(condition))
        return _logged(rows[0]) if rows else None

    async def _rows(self, statement: Select[Any]) -> list[Row[Any]]:
        async with separately(self._engine) as connection:
            return list((await connection.execute(statement)).all())


def _page_statement(wanted: RecordFilter, span: Span, limit: int) -> Select[Any]:
    order = records.c.sequence.asc() if span.ascending else records.c.sequence.desc()
    # Shards that the span does not touch cost a look into their index each. Leaving them out by number would cost more:
    # while a partition has no statistics, every further condition makes a sort look cheaper than reading in order.
    within = and_(records.c.sequence >= span.first, records.c.sequence < span.end, *_conditions(wanted))
    # One more than wanted, to know whether there is more.
    candidates = _logged_records.where(within).order_by(order).limit(limit + 1).subquery()
    place = candidates.c.sequence.asc() if span.ascending else candidates.c.sequence.desc()
    weight = func.coalesce(func.octet_length(candidates.c.canonical), 0)
    weighed = select(
        candidates,
        (func.sum(weight).over(order_by=place) - weight).label("before"),
        func.count().over().label("matching"),
    ).subquery()
    ahead = weighed.c.sequence.asc() if span.ascending else weighed.c.sequence.desc()
    return select(weighed).where(weighed.c.before < PAGE_BYTES).order_by(ahead)


def _conditions(wanted: RecordFilter) -> Iterator[ColumnElement[bool]]:
    if wanted.from_time is not None:
        yield records.c.event_time >= wanted.from_time
    if wanted.to_time is not None:
        yield records.c.event_time < wanted.to_time
    if wanted.tenant:
        # Not exactly those of the tenant, but little else: what a form says of its caller is always written the same way.
        yield func.pg_catalog.position(records.c.canonical, b'"tenant":' + orjson.dumps(wanted.tenant)) > 0
    if wanted.tool_prefix:
        yield func.starts_with(records.c.tool_version, wanted.tool_prefix)
    exact = {
        records.c.subject: wanted.subject,
        records.c.trace_id: wanted.trace_id,
        records.c.invocation_id: wanted.invocation_id,
        records.c.authz_outcome: wanted.authorization,
        records.c.status: wanted.status,
        records.c.ticket: wanted.ticket,
    }
    yield from (column == value for column, value in exact.items() if value)


def _logged(row: Row[Any]) -> LoggedRecord:
    canonical = bytes(row.canonical or b"")
    return LoggedRecord(
        row.log_id, row.sequence, canonical, bytes(row.leaf_hash), row.log_time, row.shard, row.erased_by
    )
