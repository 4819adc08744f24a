"""Sends due notifications: batched by channel and group, limited by the hour, and again where a channel fails."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from prometheus_client import Counter

from libs.common.runtime.tasks import PeriodicTask
from libs.common.telemetry.log import Log
from services.approval.adapters.notifications.links import PostgresLinks
from services.approval.adapters.notifications.queue import ClaimedNotification, NotificationQueue
from services.approval.domain.notifications.notification import Channel, Message

INTERVAL_SECONDS = 2.0
BATCH = 200
# Tickets beyond the limit of a group wait this long, and are then told together.
_POSTPONE_SECONDS = 300.0

_outcomes = Counter(
    "toolmesh_approval_notifications_total", "Notifications of approvers by outcome.", ["channel", "outcome"]
)


class NotificationSender:
    """Sends what the queue holds. Safe in any number of replicas."""

    def __init__(
        self, queue: NotificationQueue, links: PostgresLinks, channels: Sequence[Channel], hourly_limit: int, log: Log
    ) -> None:
        self._queue, self._links, self._log, self._hourly_limit = queue, links, log, hourly_limit
        self._channels = {channel.name: channel for channel in channels}

    def task(self, interval: float = INTERVAL_SECONDS) -> PeriodicTask:
        """Return the task that sends. A failed round is logged and repeated."""
        return PeriodicTask("notifications", self.send_due, self._log, interval=interval)

    async def send_due(self) -> None:
        """Send all notifications that are due."""
        while claimed := await self._queue.claim(BATCH):
            batches: dict[tuple[str, str], list[ClaimedNotification]] = defaultdict(list)
            for one in claimed:
                batches[one.channel, one.notification.group].append(one)
            for (name, group), batch in batches.items():
                await self._send(name, group, batch)
            if len(claimed) < BATCH:
                return

    async def _send(self, name: str, group: str, batch: list[ClaimedNotification]) -> None:
        channel = self._channels.get(name)
        if channel is None or not channel.serves(group):
            # The configuration changed since the row was made.
            await self._queue.mark_sent(batch)
            return
        if await self._queue.sent_in_window(name, group) >= self._hourly_limit:
            _outcomes.labels(name, "postponed").inc(len(batch))
            await self._queue.postpone(batch, _POSTPONE_SECONDS)
            return
        linked = await self._links.issue([one.notification for one in batch])
        failure = await channel.send(Message(group, linked))
        _outcomes.labels(name, "failed" if failure else "sent").inc(len(batch))
        if failure:
            self._log.warning("approvers not notified", channel=name, group=group, why=failure)
            await self._queue.postpone(batch)
        else:
            await self._queue.mark_sent(batch)
