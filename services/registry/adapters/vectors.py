"""Vectors in PostgreSQL, and which of them this process has taken on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import Column, LargeBinary, Table, Text, func, or_, select, update
from sqlalchemy.dialects.postgresql import TIMESTAMP, insert
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.sql.engine import separately, transaction
from services.registry.adapters.rows import manifest_of
from services.registry.adapters.tables import metadata, tool_versions
from services.registry.domain.discovery.ports import Unembedded

# How long a claim holds. Whoever is killed with one delays those vectors by this much and loses nothing.
LEASE_SECONDS = 60.0

# By the digest of the manifest, so that equal content is worked out once, whichever tool has it; and by the model.
tool_vectors = Table(
    "tool_vectors",
    metadata,
    Column("digest", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("vector", LargeBinary),
    Column("leased_until", TIMESTAMP(timezone=True), nullable=False),
)


class PostgresVectors:
    """Each vector is worked out by one replica at a time: who inserts or renews the row has it."""

    def __init__(self, engine: AsyncEngine, model: str, *, lease_seconds: float = LEASE_SECONDS) -> None:
        self._engine, self._model, self._lease = engine, model, timedelta(seconds=lease_seconds)

    async def claim(self, limit: int) -> Sequence[Unembedded]:
        """Take manifests that have no vector and no worker, or whose worker is late."""
        free = or_(tool_vectors.c.digest.is_(None), self._late())
        of_model = (tool_vectors.c.digest == tool_versions.c.digest) & (tool_vectors.c.model == self._model)
        due = select(tool_versions.c.digest).outerjoin(tool_vectors, of_model).where(free).distinct().limit(limit)
        async with transaction(self._engine) as connection:
            digests = list((await connection.scalars(due)).all())
            if not digests:
                return []
            until = func.clock_timestamp() + self._lease
            rows = [{"digest": digest, "model": self._model, "leased_until": until} for digest in digests]
            # Two replicas may read the same list; the second waits here for the first and then finds nothing to renew.
            take = insert(tool_vectors).values(rows)
            taken = take.on_conflict_do_update(
                index_elements=["digest", "model"], set_={"leased_until": until}, where=self._late()
            )
            ours = list((await connection.scalars(taken.returning(tool_vectors.c.digest))).all())
            return await _manifests(connection, ours)

    async def put(self, vectors: Mapping[str, bytes]) -> None:
        """Store vectors. One that somebody else stored meanwhile is the same."""
        async with transaction(self._engine) as connection:
            for digest, vector in vectors.items():
                of = (tool_vectors.c.digest == digest) & (tool_vectors.c.model == self._model)
                await connection.execute(update(tool_vectors).where(of).values(vector=vector))

    async def release(self, digests: Sequence[str]) -> None:
        """Give back what was taken on and not worked out."""
        async with separately(self._engine) as connection:
            of = tool_vectors.c.digest.in_(digests) & (tool_vectors.c.model == self._model)
            await connection.execute(update(tool_vectors).where(of).values(leased_until=func.clock_timestamp()))

    async def load(self, digests: Sequence[str]) -> Mapping[str, bytes]:
        """Return the vectors that are there."""
        query = select(tool_vectors.c.digest, tool_vectors.c.vector).where(
            tool_vectors.c.model == self._model,
            tool_vectors.c.digest.in_(digests),
            tool_vectors.c.vector.is_not(None),
        )
        async with separately(self._engine) as connection:
            return {row.digest: bytes(row.vector) for row in await connection.execute(query)}

    def _late(self) -> Any:
        return tool_vectors.c.vector.is_(None) & (tool_vectors.c.leased_until < func.clock_timestamp())


async def _manifests(connection: Any, digests: Sequence[str]) -> Sequence[Unembedded]:
    query = select(tool_versions.c.digest, tool_versions.c.document).where(tool_versions.c.digest.in_(digests))
    found = {row.digest: row.document for row in await connection.execute(query)}
    return [Unembedded(digest, manifest_of(document)) for digest, document in found.items()]
