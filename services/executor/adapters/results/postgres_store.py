"""Stores large results in PostgreSQL as encrypted pieces.

Every piece is bound to its result, its position and the total size, so that pieces cannot be moved, left out or
exchanged unnoticed. Only a hash of the access token is stored. Times are the database's, because replicas share the
rows.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, delete, func, insert, literal_column, select
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.sealing import Seal, SealError
from libs.common.sql.engine import separately, transaction
from services.executor.adapters.tables import result_pieces, results
from services.executor.domain.results.store import PIECE_BYTES, StoredHead, piece_count

# Results per sweep; each may have many pieces.
_SWEEP_ROWS = 50
# Pieces per insert statement: 2 MiB of memory beside the result itself.
_PIECES_PER_INSERT = 8


class PostgresResultStore:
    """Stores results until they expire."""

    def __init__(self, engine: AsyncEngine, seal: Seal) -> None:
        self._engine, self._seal = engine, seal

    async def put(self, head: StoredHead, content: bytes, *, seconds: float) -> datetime:
        """Store a result in one transaction and return its expiry time. Raises SERVICE_UNAVAILABLE."""
        statement = (
            insert(results)
            .values(
                result_id=head.result_id,
                tenant=head.tenant,
                subject=head.subject,
                token_hash=head.token_hash,
                digest=head.digest,
                size_bytes=head.size,
                media_type=head.media_type,
                create_time=func.now(),
                expire_time=func.now() + timedelta(seconds=seconds),
            )
            .returning(results.c.expire_time)
        )
        async with transaction(self._engine) as connection:
            expires: datetime = (await connection.execute(statement)).scalar_one()
            numbers = range(piece_count(len(content)))
            for first in numbers[::_PIECES_PER_INSERT]:
                await connection.execute(
                    insert(result_pieces),
                    [self._piece(head, content, number) for number in numbers[first : first + _PIECES_PER_INSERT]],
                )
        return expires

    async def find(self, result_id: str) -> StoredHead | None:
        """Return the head of a result; None if it does not exist or has expired. Raises SERVICE_UNAVAILABLE."""
        wanted = select(results).where(results.c.result_id == result_id, results.c.expire_time > func.now())
        async with separately(self._engine) as connection:
            row = (await connection.execute(wanted)).first()
        if row is None:
            return None
        return StoredHead(
            row.result_id, row.tenant, row.subject, row.token_hash, row.digest, row.size_bytes, row.media_type
        )

    async def piece(self, head: StoredHead, number: int) -> bytes | None:
        """Return a piece; None if it or its sealing key is gone. Raises SERVICE_UNAVAILABLE."""
        wanted = select(result_pieces.c.content).where(
            result_pieces.c.result_id == head.result_id, result_pieces.c.number == number
        )
        async with separately(self._engine) as connection:
            sealed = (await connection.execute(wanted)).scalar()
        if sealed is None:
            return None
        try:
            return self._seal.open(sealed, _seal_context(head, number))
        except SealError:
            return None

    async def sweep(self) -> int:
        """Delete a bounded number of expired results with their pieces; return how many."""
        row_id: ColumnElement[Any] = literal_column("ctid")
        expired = select(row_id).select_from(results).where(results.c.expire_time <= func.now()).limit(_SWEEP_ROWS)
        async with separately(self._engine) as connection:
            return (await connection.execute(delete(results).where(row_id.in_(expired)))).rowcount

    def _piece(self, head: StoredHead, content: bytes, number: int) -> dict[str, Any]:
        part = content[number * PIECE_BYTES : (number + 1) * PIECE_BYTES]
        return {
            "result_id": head.result_id,
            "number": number,
            "content": self._seal.seal(part, _seal_context(head, number)),
        }


def _seal_context(head: StoredHead, number: int) -> str:
    """Return the context that a piece is bound to."""
    return f"results/{head.result_id}/{number}/{head.size}/{head.digest}"
