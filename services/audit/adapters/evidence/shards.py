"""Reads shards and legal holds from PostgreSQL."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row, Select, and_, select, text
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.sql.engine import separately
from services.audit.adapters.tables import legal_holds, shard_at, shards, tree_head
from services.audit.domain.evidence.model import LAST_SHARD, LegalHold, Shard
from services.audit.domain.merkle.merkle import CompactRange

# Read in one statement with the head, so that the open shard is consistent.
_shards = select(
    shards, tree_head.c.log_id, tree_head.c.size.label("log_size"), tree_head.c.hashes.label("open_hashes")
).select_from(shards.join(tree_head, tree_head.c.log_id.is_not(None)))


class PostgresShardStore:
    """Implements ShardStore."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def get(self, number: int) -> Shard | None:
        """Implement `ShardStore.get`."""
        return await self._one(_shards.where(shards.c.number == number)) if number <= LAST_SHARD else None

    async def find_containing(self, sequence: int) -> Shard | None:
        """Implement `ShardStore.find_containing`."""
        inside = and_(shards.c.number == shard_at(sequence), tree_head.c.size > sequence)
        return await self._one(_shards.where(inside))

    async def list_from(self, first: int, limit: int) -> list[Shard]:
        """Implement `ShardStore.list_from`."""
        statement = _shards.where(shards.c.number >= first).order_by(shards.c.number).limit(limit)
        return [_shard(row) for row in await self._rows(statement)]

    async def get_hold(self, hold_id: str) -> LegalHold | None:
        """Implement `ShardStore.get_hold`."""
        rows = await self._rows(select(legal_holds).where(legal_holds.c.hold_id == hold_id))
        return _hold(rows[0]) if rows else None

    async def list_holds(self, after: str, limit: int) -> list[LegalHold]:
        """Implement `ShardStore.list_holds`."""
        statement = select(legal_holds).where(legal_holds.c.hold_id > after).order_by(legal_holds.c.hold_id)
        return [_hold(row) for row in await self._rows(statement.limit(limit))]

    async def seal(self, number: int) -> bool:
        """Implement `ShardStore.seal`."""
        async with separately(self._engine) as connection:
            sealed = await connection.execute(text("select seal_shard(:number)"), {"number": number})
            return bool(sealed.scalar_one())

    async def _one(self, statement: Select[Any]) -> Shard | None:
        rows = await self._rows(statement)
        return _shard(rows[0]) if rows else None

    async def _rows(self, statement: Select[Any]) -> list[Row[Any]]:
        async with separately(self._engine) as connection:
            return list((await connection.execute(statement)).all())


def _shard(row: Row[Any]) -> Shard:
    if row.close_time is None:
        size = row.log_size - row.first_sequence
        root = CompactRange(size, tuple(bytes(node) for node in row.open_hashes)).root()
    else:
        size, root = row.size, bytes(row.root_hash)
    return Shard(
        log_id=row.log_id,
        number=row.number,
        first_sequence=row.first_sequence,
        size=size,
        root=root,
        open_time=row.open_time,
        close_time=row.close_time,
        archive_time=row.archive_time,
        manifest_digest=row.manifest_digest or "",
        drop_time=row.drop_time,
    )


def _hold(row: Row[Any]) -> LegalHold:
    return LegalHold(**row._mapping)
