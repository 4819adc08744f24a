"""Appends to the feed of invalidations, which every replica follows."""

from __future__ import annotations

from sqlalchemy import insert, update
from sqlalchemy.ext.asyncio import AsyncConnection

from services.authz.adapters.postgres.tables import feed_head, invalidations


async def append_invalidation(connection: AsyncConnection, kind: str) -> int:
    """Append an invalidation within the caller's transaction and return its sequence number.

    The head row stays locked until the transaction ends, so call this as late as possible.
    """
    advance = update(feed_head).values(sequence=feed_head.c.sequence + 1).returning(feed_head.c.sequence)
    sequence: int = (await connection.execute(advance)).scalar_one()
    await connection.execute(insert(invalidations).values(sequence=sequence, kind=kind))
    return sequence
