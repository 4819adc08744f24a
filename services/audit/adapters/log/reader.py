"""Reads the log from PostgreSQL."""

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

# A message contains each record as bytes and as fields, so it takes about twice this; the message limit is 4 MiB.
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
    """Reads committed records. Commits are ordered by the head's row, so no snapshot shows a gap."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def head(self) -> TreeHead:
        """Implement `LogReader.head`."""
        [row] = await self._rows(select(tree_head))
        tree = CompactRange(row.size - row.first_sequence, tuple(bytes(node) for node in row.hashes))
        return TreeHead(row.log_id, tree, row.shard, row.first_sequence, row.open_time)

    async def get_by_sequence(self, log_id: str, sequence: int) -> LoggedRecord | None:
        """Implement `LogReader.get_by_sequence`."""
        at_sequence = and_(records.c.shard == shard_at(sequence), records.c.sequence == sequence)
        return await self._one(and_(at_sequence, _log_id == log_id))

    async def get_by_record_id(self, record_id: str) -> LoggedRecord | None:
        """Implement `LogReader.get_by_record_id`."""
        return await self._one(records.c.record_id == record_id)

    async def page(self, record_filter: RecordFilter, span: Span, limit: int) -> Page:
        """Implement `LogReader.page`."""
        rows = await self._rows(_page_statement(record_filter, span, limit))
        page = [_logged(row) for row in rows[:limit]]
        return Page(page, more=bool(rows) and rows[0].matching > len(page))

    async def _one(self, condition: ColumnElement[bool]) -> LoggedRecord | None:
        rows = await self._rows(_logged_records.where(condition))
        return _logged(rows[0]) if rows else None

    async def _rows(self, statement: Select[Any]) -> list[Row[Any]]:
        async with separately(self._engine) as connection:
            return list((await connection.execute(statement)).all())


def _page_statement(record_filter: RecordFilter, span: Span, limit: int) -> Select[Any]:
    order = records.c.sequence.asc() if span.ascending else records.c.sequence.desc()
    # Partitions outside the span cost one index lookup each. Excluding them by number would cost more: without
    # statistics, every further condition makes the planner prefer a sort.
    within = and_(records.c.sequence >= span.first, records.c.sequence < span.end, *_conditions(record_filter))
    # One more than the limit, to know whether there are more.
    candidates = _logged_records.where(within).order_by(order).limit(limit + 1).subquery()
    inner_order = candidates.c.sequence.asc() if span.ascending else candidates.c.sequence.desc()
    payload_bytes = func.coalesce(func.octet_length(candidates.c.canonical), 0)
    sized = select(
        candidates,
        (func.sum(payload_bytes).over(order_by=inner_order) - payload_bytes).label("before"),
        func.count().over().label("matching"),
    ).subquery()
    outer_order = sized.c.sequence.asc() if span.ascending else sized.c.sequence.desc()
    return select(sized).where(sized.c.before < PAGE_BYTES).order_by(outer_order)


def _conditions(record_filter: RecordFilter) -> Iterator[ColumnElement[bool]]:
    if record_filter.from_time is not None:
        yield records.c.event_time >= record_filter.from_time
    if record_filter.to_time is not None:
        yield records.c.event_time < record_filter.to_time
    if record_filter.tenant:
        # A rough filter by tenant; the canonical form always spells it the same way. tenancy.py filters exactly.
        yield func.pg_catalog.position(records.c.canonical, b'"tenant":' + orjson.dumps(record_filter.tenant)) > 0
    if record_filter.tool_prefix:
        yield func.starts_with(records.c.tool_version, record_filter.tool_prefix)
    if record_filter.resource_prefix:
        yield func.starts_with(records.c.resource, record_filter.resource_prefix)
    if record_filter.resource_prefix or record_filter.acts_only:
        # The condition of the index of acts, which are few among many records.
        yield records.c.resource.is_not(None)
    exact = {
        records.c.subject: record_filter.subject,
        records.c.trace_id: record_filter.trace_id,
        records.c.invocation_id: record_filter.invocation_id,
        records.c.authz_outcome: record_filter.authorization,
        records.c.status: record_filter.status,
        records.c.ticket: record_filter.ticket,
    }
    yield from (column == value for column, value in exact.items() if value)


def _logged(row: Row[Any]) -> LoggedRecord:
    canonical = bytes(row.canonical or b"")
    return LoggedRecord(
        row.log_id, row.sequence, canonical, bytes(row.leaf_hash), row.log_time, row.shard, row.erased_by
    )
