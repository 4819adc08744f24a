"""Stores upstreams, each as one document."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec
from sqlalchemy import delete, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.audit_client.outbox import ActRecorder
from libs.common.sql.engine import separately, transaction
from services.registry.adapters.postgres.acts import upstream_changed
from services.registry.adapters.postgres.tables import upstreams
from services.registry.domain.upstreams.upstream import Upstream

_DECODER = msgspec.json.Decoder(Upstream)
_SMALL = 64 * 1024


class PostgresUpstreams:
    """Implements Upstreams. Concurrent changes are detected by the revision."""

    def __init__(self, engine: AsyncEngine, acts: ActRecorder) -> None:
        self._engine, self._acts = engine, acts

    async def get(self, upstream_id: str) -> Upstream | None:
        """Implement `Upstreams.get`."""
        query = select(upstreams.c.document).where(upstreams.c.upstream_id == upstream_id)
        async with separately(self._engine) as connection:
            document = await connection.scalar(query)
        return None if document is None else (await _decode([document]))[0]

    async def list(self, after: str, limit: int) -> Sequence[Upstream]:
        """Implement `Upstreams.list`."""
        query = select(upstreams.c.document).where(upstreams.c.upstream_id > after)
        async with separately(self._engine) as connection:
            documents = await connection.scalars(query.order_by(upstreams.c.upstream_id).limit(limit))
        return await _decode(documents.all())

    async def revisions(self) -> Mapping[str, int]:
        """Implement `Upstreams.revisions`."""
        async with separately(self._engine) as connection:
            rows = await connection.execute(select(upstreams.c.upstream_id, upstreams.c.revision))
            return {row.upstream_id: row.revision for row in rows}

    async def add(self, upstream: Upstream) -> bool:
        """Implement `Upstreams.add`."""
        added = upsert(upstreams).values(_row(upstream)).on_conflict_do_nothing().returning(upstreams.c.revision)
        self._acts.admit()
        async with transaction(self._engine) as connection:
            if await connection.scalar(added) is None:
                return False
            await connection.execute(self._acts.insertion(upstream_changed(upstream, "add")))
        return True

    async def replace(self, upstream: Upstream, *, act: str = "", reason: str = "") -> bool:
        """Implement `Upstreams.replace`."""
        changed = msgspec.structs.replace(upstream, revision=upstream.revision + 1)
        stored = (upstreams.c.upstream_id == upstream.upstream_id, upstreams.c.revision == upstream.revision)
        if act:
            self._acts.admit()
        async with transaction(self._engine) as connection:
            updated = await connection.execute(update(upstreams).where(*stored).values(_row(changed)))
            if updated.rowcount and act:
                await connection.execute(self._acts.insertion(upstream_changed(changed, act, reason)))
        return bool(updated.rowcount)

    async def remove(self, upstream: Upstream) -> bool:
        """Implement `Upstreams.remove`."""
        self._acts.admit()
        async with transaction(self._engine) as connection:
            removal = delete(upstreams).where(upstreams.c.upstream_id == upstream.upstream_id)
            removed = await connection.execute(removal)
            if removed.rowcount:
                await connection.execute(self._acts.insertion(upstream_changed(upstream, "remove")))
        return bool(removed.rowcount)


async def _decode(documents: Sequence[bytes]) -> list[Upstream]:
    """Decode documents; large ones, of upstreams with many tools, not on the event loop."""
    if sum(map(len, documents)) <= _SMALL:
        return [_DECODER.decode(document) for document in documents]
    return await asyncio.to_thread(lambda: [_DECODER.decode(document) for document in documents])


def _row(upstream: Upstream) -> dict[str, object]:
    return {
        "upstream_id": upstream.upstream_id,
        "revision": upstream.revision,
        "document": msgspec.json.encode(upstream),
    }
