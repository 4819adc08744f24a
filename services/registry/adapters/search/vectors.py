"""Vectors in PostgreSQL, with leases for the process that computes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import ARRAY, Column, LargeBinary, Table, Text, bindparam, func, literal, or_, select, update
from sqlalchemy.dialects.postgresql import TIMESTAMP, insert
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.sql.engine import separately
from services.registry.adapters.postgres.rows import manifest_of
from services.registry.adapters.postgres.tables import metadata, tool_versions
from services.registry.domain.discovery.ports import VectorClaim

# The duration of a claim. A killed process delays its vectors by this long.
LEASE_SECONDS = 60.0

# Keyed by manifest digest, so that equal content is embedded once, and by model.
tool_vectors = Table(
    "tool_vectors",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("vector", LargeBinary),
    Column("leased_until", TIMESTAMP(timezone=True), nullable=False),
)
_given = select(
    func.unnest(bindparam("digests", type_=ARRAY(Text))).label("digest"),
    func.unnest(bindparam("vectors", type_=ARRAY(LargeBinary))).label("vector"),
).subquery()
_PUT = (
    update(tool_vectors)
    .where(tool_vectors.c.digest == _given.c.digest, tool_vectors.c.model == bindparam("of_model"))
    .values(vector=_given.c.vector)
)


class PostgresVectors:
    """Each vector is computed by one replica at a time: the one that inserts or renews the row."""

    def __init__(self, engine: AsyncEngine, model: str, *, lease_seconds: float = LEASE_SECONDS) -> None:
        self._engine, self._model, self._lease = engine, model, timedelta(seconds=lease_seconds)

    async def claim(self, limit: int) -> Sequence[VectorClaim]:
        """Claim manifests without a vector and without a valid lease."""
        free = or_(tool_vectors.c.digest.is_(None), self._late())
        of_model = (tool_vectors.c.digest == tool_versions.c.digest) & (tool_vectors.c.model == self._model)
        until = func.clock_timestamp() + self._lease
        due = select(tool_versions.c.digest).outerjoin(tool_vectors, of_model).where(free).distinct().limit(limit)
        selected = due.subquery()
        # Two replicas may select the same rows; the second waits for the first, in the same order, and then renews
        # nothing.
        rows = select(selected.c.digest, literal(self._model), until).order_by(selected.c.digest)
        take = insert(tool_vectors).from_select(["digest", "model", "leased_until"], rows)
        taken = take.on_conflict_do_update(
            index_elements=["digest", "model"], set_={"leased_until": until}, where=self._late()
        )
        async with separately(self._engine) as connection:
            ours = list((await connection.scalars(taken.returning(tool_vectors.c.digest))).all())
            return await _manifests(connection, ours) if ours else []

    async def put(self, vectors: Mapping[str, bytes]) -> None:
        """Store vectors. A concurrent writer would store the same vector."""
        async with separately(self._engine) as connection:
            given = {"digests": list(vectors), "vectors": list(vectors.values()), "of_model": self._model}
            await connection.execute(_PUT, given)

    async def release(self, digests: Sequence[str]) -> None:
        """Release claims without a vector."""
        async with separately(self._engine) as connection:
            of = tool_vectors.c.digest.in_(digests) & (tool_vectors.c.model == self._model)
            await connection.execute(update(tool_vectors).where(of).values(leased_until=func.clock_timestamp()))

    async def load(self, digests: Sequence[str]) -> Mapping[str, bytes]:
        """Return the vectors that exist."""
        query = select(tool_vectors.c.digest, tool_vectors.c.vector).where(
            tool_vectors.c.model == self._model,
            tool_vectors.c.digest.in_(digests),
            tool_vectors.c.vector.is_not(None),
        )
        async with separately(self._engine) as connection:
            return {row.digest: bytes(row.vector) for row in await connection.execute(query)}

    def _late(self) -> Any:
        return tool_vectors.c.vector.is_(None) & (tool_vectors.c.leased_until < func.clock_timestamp())


async def _manifests(connection: Any, digests: Sequence[str]) -> Sequence[VectorClaim]:
    query = select(tool_versions.c.digest, tool_versions.c.document).where(tool_versions.c.digest.in_(digests))
    documents = {row.digest: row.document for row in await connection.execute(query)}
    return [VectorClaim(digest, manifest_of(document)) for digest, document in documents.items()]
