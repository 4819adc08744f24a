"""Streams changes of tickets to all watchers of a process. One query at a time reads the changes for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from prometheus_client import Counter

from libs.common.runtime.bounded_cache import BoundedCache
from libs.common.runtime.poller import Poller
from libs.common.telemetry.log import Log
from services.approval.adapters.postgres_tickets import PostgresTickets
from services.approval.domain.model import Ticket
from services.approval.domain.ports import ChangeCursor
from services.approval.domain.queries.page_bytes import READ_AT_ONCE

POLL_SECONDS = 0.5
# A change is visible when its transaction commits, a little after its update time: changes are read once more.
OVERLAP = timedelta(seconds=5)
BATCH = 1000
_SEEN = 20_000
# Pieces that wait for a watcher, each of at most READ_AT_ONCE tickets. All watchers share them.
_QUEUED = 16

_polls = Counter("toolmesh_ticket_feed_polls_total", "Polls for changed tickets.", ["outcome"])


class TicketFeed:
    """Reads changed tickets and hands them to the watchers."""

    def __init__(self, tickets: PostgresTickets, log: Log) -> None:
        self._tickets = tickets
        self._round_began: datetime | None = None
        """When this round was begun; None between rounds."""
        self._after: ChangeCursor | None = None
        """Where this round goes on. Many changes may have the same time, so it is a time and an id."""
        self._seen: BoundedCache[str, int] = BoundedCache(_SEEN)
        self._watchers: set[asyncio.Queue[Sequence[Ticket] | None]] = set()
        self._poller = Poller("ticket-feed", self._poll, log, _polls, interval=POLL_SECONDS, within=10.0)

    async def start(self) -> None:
        """Start to read changes."""
        await self._poller.start()

    async def stop(self) -> None:
        """Stop, and end all streams."""
        self.end()
        await self._poller.stop()

    def end(self) -> None:
        """End all streams: watchers connect to another replica."""
        for queue in self._watchers:
            _close(queue)

    async def follow(self, check: Callable[[], None]) -> AsyncIterator[Sequence[Ticket]]:
        """Yield changed tickets until the feed ends, an empty sequence at least every two seconds. `check` is called
        before each and may raise. A watcher that reads too slowly is disconnected, and reads the list again."""
        queue: asyncio.Queue[Sequence[Ticket] | None] = asyncio.Queue(_QUEUED)
        self._watchers.add(queue)
        try:
            yield ()
            while True:
                changed: Sequence[Ticket] | None = ()
                with suppress(TimeoutError):
                    async with asyncio.timeout(2.0):
                        changed = await queue.get()
                check()
                if changed is None:
                    return
                yield changed
        finally:
            self._watchers.discard(queue)

    async def _poll(self) -> None:
        revisions, last, read_time = await self._tickets.changed_since(self._after, BATCH)
        self._round_began = self._round_began or read_time
        fresh = [ticket_id for ticket_id, revision in revisions.items() if self._seen.get(ticket_id) != revision]
        for start in range(0, len(fresh), READ_AT_ONCE):
            piece = fresh[start : start + READ_AT_ONCE]
            if self._watchers:
                self._hand_out(await self._tickets.load(piece))
            for ticket_id in piece:
                self._seen.put(ticket_id, revisions[ticket_id])
        if len(revisions) == BATCH:
            self._after = last
            self._poller.wake()
        else:
            # By the clock, not by the last change: otherwise a burst that nothing follows is read again and again.
            self._after, self._round_began = ChangeCursor(self._round_began - OVERLAP, ""), None

    def _hand_out(self, changed: Sequence[Ticket]) -> None:
        for queue in list(self._watchers):
            if queue.full():
                _close(queue)
            else:
                queue.put_nowait(changed)


def _close(queue: asyncio.Queue[Sequence[Ticket] | None]) -> None:
    while not queue.empty():
        queue.get_nowait()
    queue.put_nowait(None)
