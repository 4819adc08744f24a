"""The queue of notifications in PostgreSQL. Rows are claimed by leases, so that any number of replicas may send."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from sqlalchemy import Update, func, select, tuple_, update
from sqlalchemy import text as sql
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.sql.engine import separately, transaction
from libs.common.webhooks.schedule import next_delay
from services.approval.adapters.rows import from_row
from services.approval.adapters.tables import notifications, tickets
from services.approval.domain.notifications.notification import Notification
from services.approval.domain.states import TicketState

# Claims are made one at a time: two replicas would each take a part of what one message tells.
_CLAIM_LOCK = sql("select pg_advisory_xact_lock(hashtext('toolmesh.approval.notifications'))")
# How long a claimed notification is left to its replica.
LEASE = timedelta(seconds=60)
_WINDOW = timedelta(hours=1)
_KEY = (notifications.c.ticket_id, notifications.c.step, notifications.c.channel)


class ClaimedNotification(NamedTuple):
    """A notification that this replica sends."""

    notification: Notification
    channel: str
    attempts: int

    @property
    def key(self) -> tuple[str, int, str]:
        """The primary key of its row."""
        return self.notification.ticket.ticket_id, self.notification.step, self.channel


class NotificationQueue:
    """Claims due notifications and stores what became of them."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def claim(self, limit: int) -> list[ClaimedNotification]:
        """Claim due notifications. Those of tickets that no longer wait are dropped."""
        due = (
            select(notifications.c.step, notifications.c.channel, notifications.c.approver_group)
            .add_columns(notifications.c.attempts, *tickets.c, func.clock_timestamp().label("now"))
            .join(tickets, tickets.c.ticket_id == notifications.c.ticket_id)
            .where(notifications.c.due_time <= func.clock_timestamp())
            .order_by(notifications.c.due_time)
            .limit(limit)
            .with_for_update(skip_locked=True, of=notifications)
        )
        async with transaction(self._engine) as connection:
            await connection.execute(_CLAIM_LOCK)
            rows = (await connection.execute(due)).all()
            claimed = [
                ClaimedNotification(
                    Notification(from_row(row).at(row.now), row.step, row.approver_group), row.channel, row.attempts + 1
                )
                for row in rows
            ]
            waiting = [one for one in claimed if one.notification.ticket.state is TicketState.PENDING]
            closed = [one.key for one in claimed if one not in waiting]
            if waiting:
                leased = {"due_time": func.clock_timestamp() + LEASE, "attempts": notifications.c.attempts + 1}
                await connection.execute(_rows([one.key for one in waiting]).values(leased))
            if closed:
                await connection.execute(_rows(closed).values(due_time=None))
        return waiting

    async def sent_in_window(self, channel: str, group: str) -> int:
        """Return how many messages the channel sent to a group within the last hour."""
        recent = select(func.count(func.distinct(notifications.c.sent_time))).where(
            notifications.c.channel == channel,
            notifications.c.approver_group == group,
            notifications.c.sent_time > func.clock_timestamp() - _WINDOW,
        )
        async with separately(self._engine) as connection:
            return int(await connection.scalar(recent) or 0)

    async def mark_sent(self, sent: Sequence[ClaimedNotification]) -> None:
        """Store that notifications were delivered, in one message."""
        async with separately(self._engine) as connection:
            now = await connection.scalar(select(func.clock_timestamp()))
            await connection.execute(_rows([one.key for one in sent]).values(due_time=None, sent_time=now))

    async def postpone(self, claimed: Sequence[ClaimedNotification], seconds: float | None = None) -> None:
        """Send notifications again later: after these seconds, else as the schedule of retries says."""
        for one in claimed:
            delay = next_delay(one.attempts) if seconds is None else seconds
            due = None if delay is None else func.clock_timestamp() + timedelta(seconds=delay)
            attempts = notifications.c.attempts if seconds is None else notifications.c.attempts - 1
            async with separately(self._engine) as connection:
                await connection.execute(_rows([one.key]).values(due_time=due, attempts=attempts))


def _rows(keys: Sequence[tuple[str, int, str]]) -> Update:
    return update(notifications).where(tuple_(*_KEY).in_(keys))
