"""The end of the feed of invalidations, which every replica follows."""

from __future__ import annotations

from sqlalchemy import insert, update
from sqlalchemy.ext.asyncio import AsyncConnection

from services.authz.adapters.postgres.tables import feed_head, invalidations


async def append(connection: AsyncConnection, kind: str) -> int:
    """Add one invalidation to the feed, as a part of the caller's transaction, and return its number. Whoever appends holds
    the head until the transaction ends: call it as late as what follows allows."""
    grown = update(feed_head).values(sequence=feed_head.c.sequence + 1).returning(feed_head.c.sequence)
    sequence: int = (await connection.execute(grown)).scalar_one()
    await connection.execute(insert(invalidations).values(sequence=sequence, kind=kind))
    return sequence
