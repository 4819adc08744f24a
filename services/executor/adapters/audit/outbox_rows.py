"""SQL of the outbox: rows in insertion order, and the lease of the delivering process. Times are the database's."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from sqlalchemy import delete, func, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.sql.engine import separately
from services.executor.adapters.tables import outbox, outbox_delivery

ROWS_PER_FETCH = 200
# One statement for any number of records; the rows are numbered in the order of the arrays.
_PUT = text(
    "insert into outbox (record_id, fragment)"
    " select id, fragment from unnest(cast(:ids as text[]), cast(:fragments as bytea[]))"
    " with ordinality as t (id, fragment, position)"
    " order by position on conflict do nothing"
)

_PUT_REFUSED = text(
    "insert into outbox (record_id, fragment, refuse_time) values (:record_id, :fragment, now())"
    " on conflict (record_id) do update set refuse_time = excluded.refuse_time"
)


class OutboxRow(NamedTuple):
    """A record that waits for delivery."""

    record_id: str
    fragment: bytes


class OutboxStatus(NamedTuple):
    """The number of waiting records, the age of the oldest, and the number of refused ones."""

    waiting: int
    oldest_seconds: float
    refused: int


class OutboxRows:
    """Reads and writes the rows. Every method is one transaction."""

    def __init__(self, engine: AsyncEngine, owner: str, lease: float) -> None:
        self._engine, self._owner, self._lease = engine, owner, lease

    async def put(self, fragments: Sequence[tuple[str, bytes]]) -> None:
        """Append records in order. A record that exists keeps its position."""
        columns = {
            "ids": [record_id for record_id, _ in fragments],
            "fragments": [fragment for _, fragment in fragments],
        }
        async with separately(self._engine) as connection:
            await connection.execute(_PUT, columns)

    async def oldest(self) -> list[OutboxRow]:
        """Return the oldest waiting records, in order."""
        waiting = select(outbox.c.record_id, outbox.c.fragment).where(outbox.c.refuse_time.is_(None))
        async with separately(self._engine) as connection:
            rows = await connection.execute(waiting.order_by(outbox.c.sequence).limit(ROWS_PER_FETCH))
            return [OutboxRow(row.record_id, row.fragment) for row in rows]

    async def remove(self, record_ids: Sequence[str]) -> int:
        """Delete delivered records; return how many existed."""
        async with separately(self._engine) as connection:
            return (await connection.execute(delete(outbox).where(outbox.c.record_id.in_(record_ids)))).rowcount

    async def mark_refused(self, record_ids: Sequence[str]) -> None:
        """Mark records that the log refused; they are not delivered again."""
        statement = update(outbox).where(outbox.c.record_id.in_(record_ids)).values(refuse_time=func.now())
        async with separately(self._engine) as connection:
            await connection.execute(statement)

    async def put_refused(self, record_id: str, fragment: bytes) -> None:
        """Store a record that the log refused, or mark it if it exists."""
        async with separately(self._engine) as connection:
            await connection.execute(_PUT_REFUSED, {"record_id": record_id, "fragment": fragment})

    async def status(self) -> OutboxStatus:
        """Return the counts and the age of the oldest record."""
        waits = outbox.c.refuse_time.is_(None)
        age = func.coalesce(func.extract("epoch", func.now() - func.min(outbox.c.create_time).filter(waits)), 0.0)
        counted = select(func.count().filter(waits), age, func.count(outbox.c.refuse_time)).select_from(outbox)
        async with separately(self._engine) as connection:
            waiting, oldest, refused = (await connection.execute(counted)).one()
            return OutboxStatus(waiting, float(oldest), refused)

    async def acquire_lease(self) -> bool:
        """Acquire or renew the delivery lease; return False while another process holds it."""
        free = or_(outbox_delivery.c.owner == self._owner, outbox_delivery.c.lease_until <= func.now())
        held = func.now() + timedelta(seconds=self._lease)
        async with separately(self._engine) as connection:
            updated = await connection.execute(
                update(outbox_delivery).where(free).values(owner=self._owner, lease_until=held)
            )
            return updated.rowcount == 1

    async def release_lease(self) -> None:
        """Release the delivery lease."""
        ours = update(outbox_delivery).where(outbox_delivery.c.owner == self._owner)
        async with separately(self._engine) as connection:
            await connection.execute(ours.values(lease_until=func.now()))
