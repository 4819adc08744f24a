"""Tickets in PostgreSQL."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, or_, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.sql.engine import separately, transaction
from services.approval.adapters.rows import changing, from_row, to_row
from services.approval.adapters.tables import tickets
from services.approval.domain.model import Ticket
from services.approval.domain.ports import Place
from services.approval.domain.states import TicketState


class PostgresTickets:
    """Keeps tickets in one table. Every method is one transaction, committed when it returns."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def add(self, ticket: Ticket) -> Ticket:
        """Store a ticket; return it, or the one that its request id already opened."""
        # A concurrent insert of the same id is waited for: when this statement ends, one of the two is there.
        adding = insert(tickets).values(to_row(ticket)).on_conflict_do_nothing(index_elements=["request_id"])
        async with transaction(self._engine) as connection:
            added = (await connection.execute(adding.returning(tickets.c.ticket_id))).first()
            if added is not None:
                return ticket
            found = await connection.execute(select(tickets).where(tickets.c.request_id == ticket.draft.request_id))
            return from_row(found.one())

    async def find(self, ticket_id: str) -> Ticket | None:
        """Return a ticket as stored."""
        async with separately(self._engine) as connection:
            row = (await connection.execute(select(tickets).where(tickets.c.ticket_id == ticket_id))).first()
        return None if row is None else from_row(row)

    async def page(self, state: TicketState | None, now: datetime, after: Place | None, limit: int) -> list[Ticket]:
        """Return tickets as stored, the newest first, beginning behind a place."""
        order = (tickets.c.create_time, tickets.c.ticket_id)
        query = select(tickets).order_by(*(column.desc() for column in order)).limit(limit)
        if state is not None:
            query = query.where(_is(state, now))
        if after is not None:
            query = query.where(tuple_(*order) < tuple_(*after))
        async with separately(self._engine) as connection:
            return [from_row(row) for row in await connection.execute(query)]

    async def change(self, ticket: Ticket) -> bool:
        """Store what changed, if the ticket is still at the revision before."""
        guarded = (
            update(tickets)
            .where(tickets.c.ticket_id == ticket.ticket_id, tickets.c.revision == ticket.revision - 1)
            .values(changing(ticket))
        )
        async with separately(self._engine) as connection:
            return (await connection.execute(guarded)).rowcount == 1

    async def expire(self, now: datetime, limit: int) -> int:
        """Store the denial of so many tickets whose time is over."""
        due = (
            select(tickets.c.ticket_id)
            .where(_overdue(now))
            .order_by(tickets.c.expire_time)
            .limit(limit)
            # A ticket that somebody is about to decide or to expire is theirs; the next round looks again.
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


def _is(state: TicketState, now: datetime) -> Any:
    """Return the condition that a ticket is in the state at the moment, whatever is written down about it."""
    stored = tickets.c.state == state.value
    if state is TicketState.PENDING:
        return and_(stored, tickets.c.expire_time > now)
    if state is TicketState.AUTO_DENIED:
        return or_(stored, _overdue(now))
    return stored
