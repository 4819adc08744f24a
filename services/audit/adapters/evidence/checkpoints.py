"""Stores signed checkpoints and co-signatures in PostgreSQL."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Row, and_, func, select
from sqlalchemy.dialects.postgresql import aggregate_order_by
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.sql.engine import separately
from services.audit.adapters.tables import checkpoints, cosignatures, shards, tree_head
from services.audit.domain.model import SignedCheckpoint

_log_id = select(tree_head.c.log_id).scalar_subquery()
_lines = (
    select(func.array_agg(aggregate_order_by(cosignatures.c.line, cosignatures.c.add_time, cosignatures.c.key_id)))
    .where(cosignatures.c.shard == checkpoints.c.shard, cosignatures.c.size == checkpoints.c.size)
    .scalar_subquery()
)
_signed = select(_log_id.label("log_id"), checkpoints, shards.c.first_sequence, _lines.label("lines")).join(
    shards, shards.c.number == checkpoints.c.shard
)


class PostgresCheckpointStore:
    """Implements CheckpointStore."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def add(self, checkpoint: SignedCheckpoint) -> SignedCheckpoint:
        """Implement `CheckpointStore.add`."""
        row = {
            "shard": checkpoint.shard,
            "size": checkpoint.size,
            "root_hash": checkpoint.root,
            "note": checkpoint.note,
            "key_id": checkpoint.key_id,
            "sign_time": checkpoint.sign_time,
        }
        async with separately(self._engine) as connection:
            await connection.execute(upsert(checkpoints).values(row).on_conflict_do_nothing())
        return await self.find(checkpoint.shard, checkpoint.size) or checkpoint

    async def find(self, shard: int, size: int) -> SignedCheckpoint | None:
        """Implement `CheckpointStore.find`."""
        rows = await self._read(and_(checkpoints.c.shard == shard, checkpoints.c.size == size), 1, ascending=True)
        return rows[0] if rows else None

    async def page(self, shard: int, sizes: range, limit: int, *, ascending: bool) -> list[SignedCheckpoint]:
        """Implement `CheckpointStore.page`."""
        within = and_(checkpoints.c.size >= sizes.start, checkpoints.c.size < sizes.stop)
        return await self._read(and_(checkpoints.c.shard == shard, within), limit, ascending=ascending)

    async def add_cosignature(self, checkpoint: SignedCheckpoint, key_id: str, line: str) -> None:
        """Implement `CheckpointStore.add_cosignature`."""
        row = {"shard": checkpoint.shard, "size": checkpoint.size, "key_id": key_id, "line": line}
        async with separately(self._engine) as connection:
            await connection.execute(upsert(cosignatures).values(row).on_conflict_do_nothing())

    async def _read(self, condition: ColumnElement[bool], limit: int, *, ascending: bool) -> list[SignedCheckpoint]:
        order = checkpoints.c.size.asc() if ascending else checkpoints.c.size.desc()
        async with separately(self._engine) as connection:
            rows = await connection.execute(_signed.where(condition).order_by(order).limit(limit))
            return [_checkpoint(row) for row in rows.all()]


def _checkpoint(row: Row[Any]) -> SignedCheckpoint:
    return SignedCheckpoint(
        log_id=row.log_id,
        shard=row.shard,
        first_sequence=row.first_sequence,
        size=row.size,
        root=bytes(row.root_hash),
        note=row.note,
        key_id=row.key_id,
        sign_time=row.sign_time,
        cosignatures=tuple(row.lines or ()),
    )
