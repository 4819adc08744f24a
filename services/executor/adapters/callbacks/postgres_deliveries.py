"""Deliveries to callbacks in PostgreSQL. Their rows are written in the statement that ends the job.

Times are the database's, because replicas share the rows. A claim moves `next_time` behind its lease, so that a
delivery whose replica died is claimed again; it is identified by its number of tries.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import Row, TextClause, text
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.sealing import Seal, SealError
from libs.common.sql.engine import separately
from services.executor.adapters.jobs.job_store import callback_context
from services.executor.domain.callbacks.delivery import ClaimedDelivery, Delivery, DeliveryFilter, DeliveryStatus
from services.executor.domain.jobs.job import Callback, JobOwner
from services.executor.domain.states import State

# Longer than one try takes.
LEASE_SECONDS = 60.0
_PER_TENANT = 4
_SWEEP_ROWS = 500

_COLUMNS = "invocation_id, status, state, tries, detail, end_time, next_time, expire_time, try_time"
# A tenant whose receivers hang has few of the places.
_CLAIM = text("""
with sending as (
  select tenant, count(*) as n from callback_deliveries
  where status = 'pending' and owner <> '' and next_time > now() group by tenant
), due as (
  select d.invocation_id, d.next_time,
         coalesce(s.n, 0) + row_number() over (partition by d.tenant order by d.next_time) as turn
  from callback_deliveries d left join sending s using (tenant)
  where status = 'pending' and next_time <= now()
), chosen as (
  select c.invocation_id from callback_deliveries c join due using (invocation_id)
  where turn <= :per_tenant order by turn, due.next_time limit :max_rows for update of c skip locked
)
update callback_deliveries d set owner = 'claimed', tries = tries + 1, detail = '', try_time = now(),
       next_time = now() + :lease
from chosen where d.invocation_id = chosen.invocation_id and d.status = 'pending' and d.next_time <= now()
returning d.invocation_id, d.tenant, d.state, d.end_time, d.tries, d.callback
""")
_CLAIMED = "invocation_id = :invocation_id and tries = :tries and status = 'pending'"
_DELIVERED = text(
    f"update callback_deliveries set status = 'delivered', detail = :detail, owner = '' where {_CLAIMED}"  # noqa: S608
)
_AGAIN = text(f"""
update callback_deliveries set detail = :detail, owner = '', next_time = now() + :delay,
       expire_time = greatest(expire_time, now() + :delay + :keep) where {_CLAIMED}
""")  # noqa: S608  (made of constants)
_FAILED = text(
    f"update callback_deliveries set status = 'failed', detail = :detail, owner = '' where {_CLAIMED}"  # noqa: S608
)
_PAGE = text(f"""
select {_COLUMNS} from callback_deliveries
where tenant = :tenant and subject = :subject and (:invocation_id = '' or invocation_id = :invocation_id)
  and (cardinality(cast(:statuses as text[])) = 0 or status = any(cast(:statuses as text[])))
  and (cast(:after_time as timestamptz) is null or (end_time, invocation_id) < (:after_time, :after_id))
order by end_time desc, invocation_id desc limit :max_rows
""")  # noqa: S608  (made of constants)
# One that is being sent goes on being sent.
_REDELIVER = text(f"""
update callback_deliveries set status = 'pending', tries = 0, detail = '', owner = '', next_time = now(),
       expire_time = greatest(expire_time, now() + :keep)
where invocation_id = :invocation_id and tenant = :tenant and subject = :subject
returning {_COLUMNS}
""")  # noqa: S608
_SWEEP = text("""
delete from callback_deliveries where expire_time <= now()
and ctid in (select ctid from callback_deliveries where expire_time <= now() limit :max_rows)
""")
_KEEP = timedelta(days=7)
_DECODER = msgspec.msgpack.Decoder(Callback)


class PostgresDeliveries:
    """The deliveries of all replicas."""

    def __init__(self, engine: AsyncEngine, seal: Seal) -> None:
        self._engine, self._seal = engine, seal

    async def claim(self, limit: int) -> Sequence[ClaimedDelivery]:
        """Claim deliveries that are due, some of each tenant."""
        values = {"max_rows": limit, "per_tenant": _PER_TENANT, "lease": timedelta(seconds=LEASE_SECONDS)}
        return [self._claimed(row) for row in await self._all(_CLAIM, values)]

    async def delivered(self, claimed: ClaimedDelivery, detail: str) -> None:
        """Note that the receiver accepted it."""
        await self._settle(_DELIVERED, claimed, detail)

    async def failed(self, claimed: ClaimedDelivery, detail: str, delay: float | None) -> None:
        """Note that it was not accepted; it is sent again after the delay, or never for None."""
        if delay is None:
            await self._settle(_FAILED, claimed, detail)
        else:
            await self._settle(_AGAIN, claimed, detail, delay=timedelta(seconds=delay), keep=_KEEP)

    async def page(
        self, wanted: DeliveryFilter, size: int, after: tuple[datetime, str] | None
    ) -> tuple[Sequence[Delivery], tuple[datetime, str] | None]:
        """Return deliveries, the newest end first, and where the next page continues."""
        values = {
            "tenant": wanted.owner.tenant,
            "subject": wanted.owner.subject,
            "invocation_id": wanted.invocation_id,
            "statuses": [str(status) for status in wanted.statuses],
            "after_time": after[0] if after else None,
            "after_id": after[1] if after else "",
            "max_rows": size + 1,
        }
        rows = await self._all(_PAGE, values)
        last = rows[size - 1] if len(rows) > size else None
        deliveries = [_delivery(row) for row in rows[:size]]
        return deliveries, None if last is None else (last.end_time, last.invocation_id)

    async def redeliver(self, owner: JobOwner, invocation_id: str) -> Delivery | None:
        """Let a delivery be sent again, with all its tries; None if the owner has none."""
        values = {"invocation_id": invocation_id, "tenant": owner.tenant, "subject": owner.subject, "keep": _KEEP}
        rows = await self._all(_REDELIVER, values)
        return _delivery(rows[0]) if rows else None

    async def sweep(self) -> int:
        """Delete a bounded number of deliveries whose time is over; return how many."""
        async with separately(self._engine) as connection:
            return (await connection.execute(_SWEEP, {"max_rows": _SWEEP_ROWS})).rowcount

    async def _settle(self, statement: TextClause, claimed: ClaimedDelivery, detail: str, **values: Any) -> None:
        common = {"invocation_id": claimed.invocation_id, "tries": claimed.tries, "detail": detail}
        async with separately(self._engine) as connection:
            await connection.execute(statement, {**common, **values})

    async def _all(self, statement: TextClause, values: dict[str, Any]) -> Sequence[Row[Any]]:
        async with separately(self._engine) as connection:
            return (await connection.execute(statement, values)).all()

    def _claimed(self, row: Row[Any]) -> ClaimedDelivery:
        try:
            sealed = self._seal.open(row.callback, callback_context(row.invocation_id))
            callback: Callback | None = _DECODER.decode(sealed)
        except (SealError, msgspec.MsgspecError):
            callback = None
        return ClaimedDelivery(row.invocation_id, row.tenant, State(row.state), row.end_time, row.tries, callback)


def _delivery(row: Row[Any]) -> Delivery:
    return Delivery(
        invocation_id=row.invocation_id,
        status=DeliveryStatus(row.status),
        state=State(row.state),
        tries=row.tries,
        detail=row.detail,
        end_time=row.end_time,
        next_time=row.next_time,
        expire_time=row.expire_time,
        try_time=row.try_time,
    )
