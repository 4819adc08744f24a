"""The outbox's tables: the rows in their order, and the lease of whoever delivers them. Time is the database's own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from sqlalchemy import delete, func, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.sql.engine import separately
from services.executor.adapters.tables import outbox, outbox_delivery

ROWS_AT_A_TIME = 200
# One statement however many there are; the rows get their places in the order of the arrays.
_PUT = text(
    "insert into outbox (record_id, fragment)"
    " select id, fragment from unnest(cast(:ids as text[]), cast(:fragments as bytea[])) with ordinality as t (id, fragment, place)"
    " order by place on conflict do nothing"
)

_SET_ASIDE = text(
    "insert into outbox (record_id, fragment, refuse_time) values (:record_id, :fragment, now())"
    " on conflict (record_id) do update set refuse_time = excluded.refuse_time"
)


class Row(NamedTuple):
    """A record that waits."""

    record_id: str
    fragment: bytes


class Standing(NamedTuple):
    """How much waits, for how long the oldest has, and how much the log refused."""

    waiting: int
    oldest_seconds: float
    refused: int


class OutboxRows:
    """Reads and writes the rows. Every method is one transaction."""

    def __init__(self, engine: AsyncEngine, owner: str, lease: float) -> None:
        self._engine, self._owner, self._lease = engine, owner, lease

    async def put(self, fragments: Sequence[tuple[str, bytes]]) -> None:
        """Store records at the end, in order; one that is there already stays where it is."""
        columns = {
            "ids": [record_id for record_id, _ in fragments],
            "fragments": [fragment for _, fragment in fragments],
        }
        async with separately(self._engine) as connection:
            await connection.execute(_PUT, columns)

    async def oldest(self) -> list[Row]:
        """Return the records that wait longest, in order."""
        waiting = select(outbox.c.record_id, outbox.c.fragment).where(outbox.c.refuse_time.is_(None))
        async with separately(self._engine) as connection:
            found = await connection.execute(waiting.order_by(outbox.c.sequence).limit(ROWS_AT_A_TIME))
            return [Row(row.record_id, row.fragment) for row in found]

    async def remove(self, record_ids: Sequence[str]) -> int:
        """Forget records that the log has; return how many were here."""
        async with separately(self._engine) as connection:
            return (await connection.execute(delete(outbox).where(outbox.c.record_id.in_(record_ids)))).rowcount

    async def refuse(self, record_ids: Sequence[str]) -> None:
        """Set records aside that the log refused."""
        statement = update(outbox).where(outbox.c.record_id.in_(record_ids)).values(refuse_time=func.now())
        async with separately(self._engine) as connection:
            await connection.execute(statement)

    async def set_aside(self, record_id: str, fragment: bytes) -> None:
        """Store a record that the log refused already; one that is here is set aside."""
        async with separately(self._engine) as connection:
            await connection.execute(_SET_ASIDE, {"record_id": record_id, "fragment": fragment})

    async def standing(self) -> Standing:
        """Return how the outbox stands."""
        waits = outbox.c.refuse_time.is_(None)
        age = func.coalesce(func.extract("epoch", func.now() - func.min(outbox.c.create_time).filter(waits)), 0.0)
        counted = select(func.count().filter(waits), age, func.count(outbox.c.refuse_time)).select_from(outbox)
        async with separately(self._engine) as connection:
            waiting, oldest, refused = (await connection.execute(counted)).one()
            return Standing(waiting, float(oldest), refused)

    async def lease(self) -> bool:
        """Become, or stay, the one who delivers; False while somebody else is."""
        free = or_(outbox_delivery.c.owner == self._owner, outbox_delivery.c.lease_until <= func.now())
        held = func.now() + timedelta(seconds=self._lease)
        async with separately(self._engine) as connection:
            taken = await connection.execute(
                update(outbox_delivery).where(free).values(owner=self._owner, lease_until=held)
            )
            return taken.rowcount == 1

    async def release(self) -> None:
        """Let somebody else deliver."""
        ours = update(outbox_delivery).where(outbox_delivery.c.owner == self._owner)
        async with separately(self._engine) as connection:
            await connection.execute(ours.values(lease_until=func.now()))
