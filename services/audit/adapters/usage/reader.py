"""Queries usage in PostgreSQL. Every result and its progress come from one snapshot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import date
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, and_, bindparam, desc, distinct, false, func, or_, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from libs.common.sql.engine import transaction
from services.audit.adapters.tables import tree_head
from services.audit.adapters.usage_tables import TALLY_COLUMNS, row_to_tally, usage_cells, usage_position
from services.audit.domain.log.yield_every import yield_every
from services.audit.domain.usage.call import ERRORS, OTHER, Outcome
from services.audit.domain.usage.cells import Rollup
from services.audit.domain.usage.model import (
    GROUPED_BY,
    DailyUsage,
    DayCounts,
    DayRange,
    Progress,
    RankedEntry,
    RankingPage,
    RankingWindow,
    ToolUsage,
    UsageGroup,
    UsageOrder,
    UsageQuery,
)
from services.audit.domain.usage.tally import Tally

_cells = usage_cells.c
_calls = sum((_cells[outcome.value] for outcome in Outcome), start=_cells.succeeded * 0)
_errors = sum((_cells[outcome.value] for outcome in ERRORS), start=_cells.failed * 0)
_ORDERS: dict[UsageOrder, ColumnElement[Any]] = {
    UsageOrder.CALLS: func.sum(_calls),
    UsageOrder.ERRORS: func.sum(_errors),
    UsageOrder.COST: func.sum(_cells.cost_micros),
    UsageOrder.LATENCY: func.coalesce(func.sum(_cells.latency_sum_us) / func.nullif(func.sum(_cells.timed), 0), -1),
}


_counted = select(usage_position.c.counted).scalar_subquery()
_log_size = select(tree_head.c.size).scalar_subquery()
_Key = tuple[str, ...]


class _ToolQueryKind(NamedTuple):
    """Tool queries with the same days and the same naming dimensions, answered together."""

    days: DayRange
    named: tuple[str, ...]


class PostgresUsageReader:
    """Implements UsageReader."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def get_daily_usage(self, query: UsageQuery) -> DailyUsage:
        """Implement `UsageReader.get_daily_usage`."""
        async with self._snapshot() as snapshot:
            merged = await _merge_tallies(await snapshot.rows(query), lambda row: row.day)
            return DailyUsage(sorted(merged.items()), await snapshot.progress(query))

    async def get_tool_usages(self, queries: Sequence[UsageQuery]) -> list[ToolUsage]:
        """Implement `UsageReader.get_tool_usages`."""
        usages: dict[tuple[_ToolQueryKind, _Key], ToolUsage] = {}
        async with self._snapshot() as snapshot:
            for kind, keys in _group_by_kind(queries).items():
                usages |= {(kind, key): usage for key, usage in (await snapshot.tools(kind, keys)).items()}
        return [usages[_kind_of(query), _key_of(query)] for query in queries]

    async def get_ranking(self, query: UsageQuery, window: RankingWindow) -> RankingPage:
        """Implement `UsageReader.get_ranking`."""
        columns = GROUPED_BY[window.group]
        async with self._snapshot() as snapshot:
            keys = await snapshot.ranking(query, window)
            page, more = keys[: window.limit], len(keys) > window.limit
            rows = await snapshot.rows(query, _key_in(columns, page)) if page else []
            merged = await _merge_tallies(rows, lambda row: tuple(getattr(row, name) for name in columns))
            days = _daily_counts(rows, columns)
            entries = [RankedEntry(key, merged[key], sorted(days[key])) for key in page]
            return RankingPage(entries, more, await snapshot.progress(query))

    @asynccontextmanager
    async def _snapshot(self) -> AsyncIterator[_Snapshot]:
        async with transaction(self._engine, isolation="REPEATABLE READ") as connection:
            yield _Snapshot(connection)


class _Snapshot:
    """The counts in one transaction."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def rows(self, query: UsageQuery, also: ColumnElement[bool] | None = None) -> list[Any]:
        statement = select(
            *(_cells[name] for name in ("day", "tool", "version", "tenant", "subject", "task")), *TALLY_COLUMNS
        ).where(*_matching_cells(query))
        return await self._all(statement if also is None else statement.where(also))

    async def tools(self, kind: _ToolQueryKind, keys: set[_Key]) -> dict[_Key, ToolUsage]:
        """Return the usage of tools or versions in the same days. Those that were never called are found first and
        skipped."""
        spans = await self._spans(kind, keys)
        called = set(spans)
        rows = await self.rows(_query_of_kind(kind), _key_in(kind.named, called)) if called else []
        merged = await _merge_tallies(rows, lambda row: tuple(getattr(row, name) for name in kind.named))
        callers = await self._callers(kind, called) if called else {}
        progress = await self._progress_of(kind, keys)
        return {
            key: ToolUsage(
                *spans.get(key, (None, None)),
                merged.get(key, Tally()),
                *callers.get(key, (0, False)),
                progress[key],
            )
            for key in keys
        }

    async def _spans(self, kind: _ToolQueryKind, keys: set[_Key]) -> dict[_Key, tuple[Any, Any]]:
        columns = [_cells[name] for name in kind.named]
        ever = select(*columns, func.min(_cells.first_time), func.max(_cells.last_time)).group_by(*columns)
        rows = await self._all(ever.where(_in_rollup(_query_of_kind(kind).rollup), _key_in(kind.named, keys)))
        return {tuple(row[:-2]): (row[-2], row[-1]) for row in rows}

    async def _callers(self, kind: _ToolQueryKind, keys: set[_Key]) -> dict[_Key, tuple[int, bool]]:
        columns, distinct_caller = [_cells[name] for name in kind.named], _cells.subject != OTHER
        counted = func.count(distinct(tuple_(_cells.tenant, _cells.subject))).filter(distinct_caller)
        within = _in_days(UsageQuery(kind.days, {}, group_by=frozenset({*kind.named, "subject"})))
        statement = select(*columns, counted, func.coalesce(func.bool_or(~distinct_caller), False)).group_by(*columns)
        rows = await self._all(statement.where(*within, _key_in(kind.named, keys)))
        return {tuple(row[:-2]): (row[-2], row[-1]) for row in rows}

    async def _progress_of(self, kind: _ToolQueryKind, keys: set[_Key]) -> dict[_Key, Progress]:
        """Return the progress, and for each key the number of folded calls that may be its own."""
        columns = [_cells[name] for name in kind.named]
        maybe = [column.in_([OTHER, *values]) for column, values in zip(columns, zip(*keys, strict=True), strict=True)]
        folded = select(*columns, func.sum(_calls)).group_by(*columns).where(*_in_days(_query_of_kind(kind)), *maybe)
        rows = await self._all(folded.where(or_(*(column == OTHER for column in columns))))
        [(counted, size)] = await self._all(select(_counted, _log_size))
        return {key: Progress(counted, size, sum(int(row[-1]) for row in rows if _covers(row, key))) for key in keys}

    async def ranking(self, query: UsageQuery, window: RankingWindow) -> list[tuple[str, ...]]:
        columns = [_cells[name] for name in GROUPED_BY[window.group]]
        statement = (
            select(*columns)
            .where(*_matching_cells(query), columns[0] != OTHER)
            .group_by(*columns)
            .order_by(desc(_ORDERS[window.order]), *columns)
            .offset(window.offset)
            .limit(window.limit + 1)
        )
        if window.group is UsageGroup.TASK:
            statement = statement.where(_cells.task != "")
        return [tuple(row) for row in await self._all(statement)]

    async def progress(self, query: UsageQuery) -> Progress:
        folded = select(func.coalesce(func.sum(_calls), 0)).where(*_folded_cells(query)).scalar_subquery()
        [row] = await self._all(select(_counted, _log_size, folded))
        return Progress(row[0], row[1], int(row[2]))

    async def _all(self, statement: Any) -> list[Any]:
        return list((await self._connection.execute(statement)).all())


def _kind_of(query: UsageQuery) -> _ToolQueryKind:
    return _ToolQueryKind(query.days, tuple(query.terms))


def _key_of(query: UsageQuery) -> _Key:
    return tuple(query.terms.values())


def _group_by_kind(queries: Iterable[UsageQuery]) -> dict[_ToolQueryKind, set[_Key]]:
    kinds: defaultdict[_ToolQueryKind, set[_Key]] = defaultdict(set)
    for query in queries:
        kinds[_kind_of(query)].add(_key_of(query))
    return dict(kinds)


def _query_of_kind(kind: _ToolQueryKind) -> UsageQuery:
    """Return the query of a kind without its keys."""
    return UsageQuery(kind.days, {}, group_by=frozenset(kind.named))


def _covers(row: Any, key: _Key) -> bool:
    """Return whether calls of a row may belong to a key."""
    return all(value in (expected, OTHER) for value, expected in zip(row[:-1], key, strict=True))


def _matching_cells(query: UsageQuery) -> Iterator[ColumnElement[bool]]:
    yield from _in_days(query)
    yield from _equal_terms(query)


def _folded_cells(query: UsageQuery) -> Iterator[ColumnElement[bool]]:
    """Select cells with folded calls that may match the query."""
    dimensions = query.group_by | query.terms.keys()
    yield from _in_days(query)
    yield from (_cells[name].in_([value, OTHER]) for name, value in query.terms.items())
    yield or_(false(), *(_cells[name] == OTHER for name in dimensions))


def _in_days(query: UsageQuery) -> Iterator[ColumnElement[bool]]:
    yield _in_rollup(query.rollup)
    yield and_(_cells.day >= query.days.first, _cells.day < query.days.end)


def _in_rollup(rollup: Rollup) -> ColumnElement[bool]:
    # A literal, because the planner uses a partial index only if it sees the value.
    return _cells.rollup == bindparam(None, rollup.value, literal_execute=True)


def _equal_terms(query: UsageQuery) -> Iterator[ColumnElement[bool]]:
    yield from (_cells[name] == value for name, value in query.terms.items())


def _key_in(columns: tuple[str, ...], keys: Iterable[_Key]) -> ColumnElement[bool]:
    if len(columns) == 1:
        # A one-column tuple would not use the index.
        return _cells[columns[0]].in_([value for (value,) in keys])
    return tuple_(*(_cells[name] for name in columns)).in_(list(keys))


async def _merge_tallies(rows: Iterable[Any], key: Any) -> dict[Any, Tally]:
    merged: defaultdict[Any, Tally] = defaultdict(Tally)
    async for row in yield_every(rows):
        merged[key(row)].merge(row_to_tally(row))
    return dict(merged)


def _daily_counts(rows: Iterable[Any], columns: tuple[str, ...]) -> dict[tuple[str, ...], list[DayCounts]]:
    counts: defaultdict[tuple[str, ...], dict[date, DayCounts]] = defaultdict(dict)
    for row in rows:
        by_day = counts[tuple(getattr(row, name) for name in columns)]
        before = by_day.get(row.day, DayCounts(row.day, 0, 0))
        calls = sum(getattr(row, outcome.value) for outcome in Outcome)
        errors = sum(getattr(row, outcome.value) for outcome in ERRORS)
        by_day[row.day] = DayCounts(row.day, before.calls + calls, before.errors + errors)
    return {key: list(by_day.values()) for key, by_day in counts.items()}
