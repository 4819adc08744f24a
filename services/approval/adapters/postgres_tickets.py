"""Tickets in PostgreSQL. Times are those of the database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, and_, func, literal, not_, or_, select, tuple_, update
from sqlalchemy.dialects.postgresql import ARRAY, insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.types import Text

from libs.audit_client.outbox import ActRecorder
from libs.common.errors import MeshError
from libs.common.sql.engine import separately, transaction
from services.approval.adapters.acts import STATES_AFTER, refusal_act, step_act
from services.approval.adapters.rows import from_row, mutable_columns, to_row
from services.approval.adapters.tables import notifications, tickets
from services.approval.domain.errors import too_many_open
from services.approval.domain.model import StepKind, Ticket
from services.approval.domain.notifications.notification import Channel
from services.approval.domain.person import READ_SCOPE, Person
from services.approval.domain.ports import Change, ChangeCursor, Cursor, TicketQuery, View
from services.approval.domain.states import OPEN, TicketState

# The open ticket of a call may close between the insert and the select.
_ATTEMPTS = 5
_NOW = func.statement_timestamp()
_ASKING = frozenset({StepKind.CREATED, StepKind.ESCALATED})


class TicketChangePage(NamedTuple):
    """Tickets that changed."""

    revisions: dict[str, int]
    """The revision of each ticket, by its id."""
    last: ChangeCursor
    read_time: datetime
    """When it was read: what committed before is in it or behind `last`."""


class PostgresTickets:
    """Stores tickets in one table, with their audit records and notifications in the same transaction."""

    def __init__(
        self, engine: AsyncEngine, acts: ActRecorder, channels: Sequence[Channel] = (), *, max_open: int = 100
    ) -> None:
        """`channels` notify the groups that are asked; `max_open` bounds the open tickets of one requester."""
        self._max_open = max_open
        self._engine, self._acts, self._channels = engine, acts, channels

    async def add(self, make: Callable[[datetime], Ticket]) -> tuple[Ticket, datetime]:
        self._acts.admit()
        for _ in range(_ATTEMPTS):
            async with transaction(self._engine) as connection:
                now = await _time(connection)
                ticket = make(now)
                # The insert waits for a concurrent insert of the same request id or call.
                adding = insert(tickets).values(to_row(ticket)).on_conflict_do_nothing()
                if (await connection.execute(adding.returning(tickets.c.ticket_id))).first() is not None:
                    # Counted with the new one, which is rolled back beyond the limit.
                    if await _count_open(connection, ticket, self._max_open + 1) > self._max_open:
                        raise too_many_open(self._max_open)
                    await self._record(connection, None, ticket)
                    return ticket, now
                stored = await self._existing(connection, ticket, now)
            if stored is not None:
                return stored, now
        raise RuntimeError("the open ticket of the call kept changing")

    async def find(self, ticket_id: str) -> Ticket | None:
        async with separately(self._engine) as connection:
            row = (await connection.execute(select(tickets, _NOW).where(tickets.c.ticket_id == ticket_id))).first()
        return None if row is None else from_row(row).at(row[-1])

    async def page(self, query: TicketQuery, after: Cursor | None, limit: int) -> list[Ticket]:
        order = (tickets.c.create_time, tickets.c.ticket_id)
        rows = select(tickets, _NOW).order_by(*(column.desc() for column in order)).limit(limit)
        rows = rows.where(*conditions_of(query))
        if after is not None:
            rows = rows.where(tuple_(*order) < tuple_(*after))
        async with separately(self._engine) as connection:
            return [from_row(row).at(row[-1]) for row in await connection.execute(rows)]

    async def change(self, ticket_id: str, change: Change) -> Ticket | None:
        async with transaction(self._engine) as connection:
            locking = select(tickets).where(tickets.c.ticket_id == ticket_id).with_for_update()
            row = (await connection.execute(locking)).first()
            if row is None:
                return None
            # After the lock, which may have waited.
            now = await _time(connection)
            stored = from_row(row)
            changed = change(stored, now)
            await self._store(connection, stored, changed)
        return changed.at(now)

    async def record_refusal(self, ticket: Ticket, verb: str, error: MeshError) -> None:
        self._acts.admit()
        async with separately(self._engine) as connection:
            now = await _time(connection)
            await connection.execute(self._acts.insertion(refusal_act(ticket, verb, error, now)))

    async def advance(self, limit: int) -> int:
        due = (
            select(tickets)
            .where(tickets.c.next_time <= func.clock_timestamp())
            .order_by(tickets.c.next_time)
            .limit(limit)
            # A locked ticket is being decided or advanced by another transaction; the next sweep checks it again.
            .with_for_update(skip_locked=True)
        )
        async with transaction(self._engine) as connection:
            rows = (await connection.execute(due)).all()
            now = await _time(connection) if rows else None
            for row in rows:
                stored = from_row(row)
                await self._store(connection, stored, stored.at(now or stored.create_time))
        return len(rows)

    async def changed_since(self, after: ChangeCursor | None, limit: int) -> TicketChangePage:
        """Return the tickets that changed behind a cursor, the oldest change first; none without a cursor."""
        order = (tickets.c.update_time, tickets.c.ticket_id)
        async with separately(self._engine) as connection:
            now = await _time(connection)
            if after is None:
                return TicketChangePage({}, ChangeCursor(now, ""), now)
            rows = select(*order, tickets.c.revision).where(tuple_(*order) > tuple_(*after))
            result = (await connection.execute(rows.order_by(*order).limit(limit))).all()
        last = ChangeCursor(result[-1].update_time, result[-1].ticket_id) if result else after
        return TicketChangePage({row.ticket_id: row.revision for row in result}, last, now)

    async def load(self, ticket_ids: Sequence[str]) -> list[Ticket]:
        """Return tickets as of now."""
        rows = select(tickets, _NOW).where(tickets.c.ticket_id.in_(ticket_ids))
        async with separately(self._engine) as connection:
            return [from_row(row).at(row[-1]) for row in await connection.execute(rows)]

    async def _existing(self, connection: AsyncConnection, ticket: Ticket, now: datetime) -> Ticket | None:
        """Return the ticket that the insert met: of the same request id, or open for the same call."""
        draft = ticket.draft
        same_request = tickets.c.request_id == draft.request_id
        row = (await connection.execute(select(tickets).where(same_request))).first()
        if row is not None:
            return from_row(row)
        open_call = and_(tickets.c.call_digest == draft.call_digest, tickets.c.state.in_([s.value for s in OPEN]))
        row = (await connection.execute(select(tickets).where(open_call).with_for_update())).first()
        if row is None:
            return None
        stored = from_row(row)
        current = stored.at(now)
        await self._store(connection, stored, current)
        return current if current.is_open else None

    async def _store(self, connection: AsyncConnection, before: Ticket, after: Ticket) -> None:
        if after.revision == before.revision:
            return
        changing = update(tickets).where(tickets.c.ticket_id == after.ticket_id).values(mutable_columns(after))
        await connection.execute(changing)
        await self._record(connection, before, after)

    async def _record(self, connection: AsyncConnection, before: Ticket | None, after: Ticket) -> None:
        """Record the new steps, and queue a notification for each group that is asked."""
        known = 0 if before is None else len(before.steps)
        previous: str = "" if before is None else before.state
        for step in after.steps[known:]:
            await connection.execute(self._acts.insertion(step_act(after, step, previous)))
            previous = STATES_AFTER.get(step.kind, previous)
            if step.kind in _ASKING and after.is_open:
                asked = after.draft.escalation_chain[0] if step.kind is StepKind.CREATED else step.detail
                if rows := self._notifications(after, step.number, asked):
                    await connection.execute(insert(notifications).values(rows))

    def _notifications(self, ticket: Ticket, step: int, group: str) -> list[dict[str, Any]]:
        row = {"ticket_id": ticket.ticket_id, "step": step, "approver_group": group, "attempts": 0}
        times = {"due_time": func.clock_timestamp(), "create_time": func.clock_timestamp()}
        return [{**row, **times, "channel": channel.name} for channel in self._channels if channel.serves(group)]


async def _count_open(connection: AsyncConnection, ticket: Ticket, limit: int) -> int:
    """Return how many open tickets the requester has; counting stops at the limit."""
    requester = ticket.draft.requester
    own = select(tickets.c.ticket_id).where(
        tickets.c.tenant == requester.tenant,
        tickets.c.requester["subject"].astext == requester.subject,
        tickets.c.next_time.is_not(None),
    )
    return int(await connection.scalar(select(func.count()).select_from(own.limit(limit).subquery())) or 0)


async def _time(connection: AsyncConnection) -> datetime:
    time: datetime = (await connection.execute(select(func.clock_timestamp()))).scalar_one()
    return time


def conditions_of(query: TicketQuery) -> list[ColumnElement[bool]]:
    """Return the conditions of a query."""
    conditions: list[ColumnElement[bool]] = []
    reader = query.reader
    if query.state is not None:
        conditions.append(_has_state(query.state))
    if reader is None:
        return conditions
    if reader.tenant:
        conditions.append(tickets.c.tenant == reader.tenant)
    own = tickets.c.requester["subject"].astext == reader.subject
    if query.view is View.REQUESTER:
        conditions.append(own)
    elif query.view is View.APPROVER:
        conditions += [tickets.c.asked_groups.overlap(_texts(reader)), not_(_takes_part(reader))]
    elif READ_SCOPE not in reader.scopes:
        conditions.append(or_(own, tickets.c.escalation_chain.overlap(_texts(reader))))
    return conditions


def _takes_part(reader: Person) -> ColumnElement[bool]:
    requester = tickets.c.requester
    named = or_(requester["subject"].astext == reader.subject, requester["agent"].astext == reader.subject)
    # The chain is a list of pairs; a pair that contains the subject is one of its delegations.
    return or_(named, requester.contains({"delegation_chain": [[reader.subject]]}))


def _texts(reader: Person) -> Any:
    return literal(sorted(reader.groups), ARRAY(Text))


def _has_state(state: TicketState) -> ColumnElement[bool]:
    """Return the condition that a ticket is in the state now, also if its end is not stored yet."""
    stored = tickets.c.state == state.value
    timed_out = and_(tickets.c.state == TicketState.PENDING.value, tickets.c.expire_time <= _NOW)
    lapsed = and_(tickets.c.state == TicketState.APPROVED.value, tickets.c.approval_expire_time <= _NOW)
    if state is TicketState.PENDING:
        return and_(stored, tickets.c.expire_time > _NOW)
    if state is TicketState.APPROVED:
        return and_(stored, tickets.c.approval_expire_time > _NOW)
    if state is TicketState.AUTO_DENIED:
        return or_(stored, timed_out)
    if state is TicketState.EXPIRED:
        return or_(stored, lapsed)
    return stored
