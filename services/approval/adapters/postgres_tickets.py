"""Tickets in PostgreSQL."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, or_, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.sql.engine import separately, transaction
from services.approval.adapters.rows import from_row, mutable_columns, to_row
from services.approval.adapters.tables import tickets
from services.approval.domain.model import Ticket
from services.approval.domain.ports import Cursor
from services.approval.domain.states import TicketState


class PostgresTickets:
    """Stores tickets in one table. Every method is one committed transaction."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def add(self, ticket: Ticket) -> Ticket:
        # The insert waits for a concurrent insert of the same request id, so one of the two exists afterwards.
        adding = insert(tickets).values(to_row(ticket)).on_conflict_do_nothing(index_elements=["request_id"])
        async with transaction(self._engine) as connection:
            added = (await connection.execute(adding.returning(tickets.c.ticket_id))).first()
            if added is not None:
                return ticket
            result = await connection.execute(select(tickets).where(tickets.c.request_id == ticket.draft.request_id))
            return from_row(result.one())

    async def find(self, ticket_id: str) -> Ticket | None:
        async with separately(self._engine) as connection:
            row = (await connection.execute(select(tickets).where(tickets.c.ticket_id == ticket_id))).first()
        return None if row is None else from_row(row)

    async def page(
        self, state: TicketState | None, now: datetime, after: Cursor | None, limit: int, *, tenant: str = ""
    ) -> list[Ticket]:
        order = (tickets.c.create_time, tickets.c.ticket_id)
        query = select(tickets).order_by(*(column.desc() for column in order)).limit(limit)
        if tenant:
            query = query.where(tickets.c.tenant == tenant)
        if state is not None:
            query = query.where(_has_state(state, now))
        if after is not None:
            query = query.where(tuple_(*order) < tuple_(*after))
        async with separately(self._engine) as connection:
            return [from_row(row) for row in await connection.execute(query)]

    async def change(self, ticket: Ticket) -> bool:
        guarded = (
            update(tickets)
            .where(tickets.c.ticket_id == ticket.ticket_id, tickets.c.revision == ticket.revision - 1)
            .values(mutable_columns(ticket))
        )
        async with separately(self._engine) as connection:
            return (await connection.execute(guarded)).rowcount == 1

    async def expire(self, now: datetime, limit: int) -> int:
        due = (
            select(tickets.c.ticket_id)
            .where(_overdue(now))
            .order_by(tickets.c.expire_time)
            .limit(limit)
            # A locked ticket is being decided or expired by another transaction; the next sweep checks it again.
            .with_for_update(skip_locked=True)
            .cte("due")
        )
        denying = (
            update(tickets)
            .where(tickets.c.ticket_id == due.c.ticket_id)
            .values(
                state=TicketState.AUTO_DENIED.value,
                revision=tickets.c.revision + 1,
                resolve_time=tickets.c.expire_time,
            )
        )
        async with separately(self._engine) as connection:
            return int((await connection.execute(denying)).rowcount)


def _overdue(now: datetime) -> ColumnElement[bool]:
    return and_(tickets.c.state == TicketState.PENDING.value, tickets.c.expire_time <= now)


def _has_state(state: TicketState, now: datetime) -> Any:
    """Return the condition that a ticket is in the state at `now`, also if its expiry is not stored yet."""
    stored = tickets.c.state == state.value
    if state is TicketState.PENDING:
        return and_(stored, tickets.c.expire_time > now)
    if state is TicketState.AUTO_DENIED:
        return or_(stored, _overdue(now))
    return stored
