"""Reads Merkle hashes from PostgreSQL.

Leaf hashes are stored with the records, and the roots of 256, 65,536, ... leaves in a table of their own, so that any
node is computed from at most 128 stored hashes. A proof reads at most two blocks of 256 hashes per stored level: below
1,600 for ten million records, in two statements.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import and_, case, func, select, text
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.sql.engine import separately
from services.audit.adapters.tables import records, subtrees
from services.audit.domain.evidence.model import Leaf, Shard
from services.audit.domain.merkle.merkle import STORED_LEVELS, CompactRange, LeafRange, Node
from services.audit.domain.model import Entry

# Ordered and limited, so that each run is read by the index even without statistics.
_LEAF_HASHES = text(
    """
    select leaves.sequence - :first_sequence, leaves.leaf_hash
    from unnest(cast(:firsts as bigint[]), cast(:ends as bigint[])) as wanted (first, behind)
    cross join lateral (
        select sequence, leaf_hash from records
        where shard = :shard
            and sequence >= :first_sequence + wanted.first and sequence < :first_sequence + wanted.behind
        order by sequence limit wanted.behind - wanted.first
    ) as leaves
    """
)
_SUBTREE_HASHES = text(
    """
    select subtrees.level, subtrees.place, subtrees.hash
    from unnest(cast(:levels as bigint[]), cast(:firsts as bigint[]), cast(:ends as bigint[]))
        as wanted (level, first, behind)
    join subtrees on subtrees.shard = :shard and subtrees.level = wanted.level
        and subtrees.place >= wanted.first and subtrees.place < wanted.behind
    """
)


def _valid_time(column: Any) -> Any:
    """Select a time, and null for one outside the calendar."""
    in_calendar = and_(
        column >= text("timestamptz '0001-01-01 00:00+00'"), column < text("timestamptz '10000-01-01 00:00+00'")
    )
    return case((in_calendar, column))


_leaves = select(
    records.c.sequence,
    records.c.leaf_hash,
    _valid_time(records.c.log_time),
    _valid_time(records.c.event_time),
    func.coalesce(records.c.canonical, b""),
    records.c.record_id,
    *(
        func.coalesce(column, "")
        for column in (
            *(records.c.subject, records.c.tool_version, records.c.trace_id, records.c.invocation_id),
            *(records.c.authz_outcome, records.c.status, records.c.ticket, records.c.resource),
        )
    ),
)

Run = tuple[int, range]


class PostgresTreeStore:
    """Implements TreeStore."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def node_hashes(self, shard: Shard, nodes: Sequence[Node]) -> Mapping[Node, bytes]:
        """Implement `TreeStore.node_hashes`."""
        runs = {node: _stored_run(node) for node in nodes}
        stored = await self._hashes(shard, _merge_runs(runs.values()))
        computed = {}
        for node, (level, offsets) in runs.items():
            hashes = [digest for offset in offsets if (digest := stored.get((level, offset)))]
            if len(hashes) == len(offsets):
                computed[node] = CompactRange().extend(hashes).root()
        return computed

    async def stored_hashes(self, shard: Shard, level: int, offsets: range) -> Mapping[int, bytes]:
        """Implement `TreeStore.stored_hashes`."""
        statement = select(subtrees.c.place, subtrees.c.hash).where(
            subtrees.c.shard == shard.number,
            subtrees.c.level == level,
            subtrees.c.place >= offsets.start,
            subtrees.c.place < offsets.stop,
        )
        return {offset: bytes(digest) for offset, digest in await self._rows(statement)}

    async def read_leaves(self, shard: Shard, span: LeafRange) -> list[Leaf]:
        """Implement `TreeStore.read_leaves`."""
        first, end = shard.first_sequence + span.first, shard.first_sequence + span.end
        statement = _leaves.where(
            records.c.shard == shard.number, records.c.sequence >= first, records.c.sequence < end
        ).order_by(records.c.sequence)
        return [_leaf(*row) for row in await self._rows(statement)]

    async def sequence_bounds(self, shard: int) -> tuple[int, int] | None:
        """Implement `TreeStore.sequence_bounds`."""
        statement = select(func.min(records.c.sequence), func.max(records.c.sequence)).where(records.c.shard == shard)
        [(lowest, highest)] = await self._rows(statement)
        return None if lowest is None else (lowest, highest)

    async def _hashes(self, shard: Shard, runs: Sequence[Run]) -> dict[tuple[int, int], bytes]:
        """Return hashes of stored levels by level and offset; level 0 are the leaves."""
        leaves = [offsets for level, offsets in runs if level == 0]
        higher = [(level, offsets) for level, offsets in runs if level]
        hashes: dict[tuple[int, int], bytes] = {}
        if leaves:
            bounds = {"firsts": [offsets.start for offsets in leaves], "ends": [offsets.stop for offsets in leaves]}
            rows = await self._rows(_LEAF_HASHES, shard=shard.number, first_sequence=shard.first_sequence, **bounds)
            hashes.update(((0, offset), bytes(leaf)) for offset, leaf in rows)
        if higher:
            bounds = {
                "levels": [level for level, _ in higher],
                "firsts": [offsets.start for _, offsets in higher],
                "ends": [offsets.stop for _, offsets in higher],
            }
            rows = await self._rows(_SUBTREE_HASHES, shard=shard.number, **bounds)
            hashes.update(((level, offset), bytes(node)) for level, offset, node in rows)
        return hashes

    async def _rows(self, statement: Any, **parameters: Any) -> list[Any]:
        async with separately(self._engine) as connection:
            return list((await connection.execute(statement, parameters)).all())


def _leaf(
    sequence: int, leaf: bytes, log_time: datetime | None, event_time: datetime | None, form: bytes, *columns: str
) -> Leaf:
    canonical, (record_id, *index_texts) = bytes(form), columns
    entry = None if event_time is None else Entry(record_id, canonical, event_time, *index_texts)
    return Leaf(sequence, canonical, bytes(leaf), log_time, entry)


def _stored_run(node: Node) -> Run:
    """Return the stored hashes that a node consists of: the level and the range of offsets."""
    height = node.level % STORED_LEVELS
    first = node.offset << height
    return node.level - height, range(first, first + (1 << height))


def _merge_runs(runs: Iterable[Run]) -> list[Run]:
    """Merge overlapping and adjacent runs."""
    merged: list[Run] = []
    for level, offsets in sorted(runs, key=lambda run: (run[0], run[1].start)):
        if merged and merged[-1][0] == level and offsets.start <= merged[-1][1].stop:
            before = merged[-1][1]
            merged[-1] = (level, range(before.start, max(before.stop, offsets.stop)))
        else:
            merged.append((level, offsets))
    return merged
