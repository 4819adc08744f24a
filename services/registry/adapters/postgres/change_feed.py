"""Polls the change log once for all watchers of a process, and wakes them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from prometheus_client import Counter, Gauge

from libs.common.runtime.poller import Poller
from libs.common.telemetry.log import Log
from services.registry.domain.catalog.changes import Change, Horizon, Position
from services.registry.domain.errors import watch_ended, watch_fell_behind
from services.registry.domain.ports import ChangeLog

# Also the interval of heartbeats: a poll without new changes sends one. A failed poll sends none, so silence means
# unknown.
POLL_SECONDS = 2.0
# Changes kept in memory for watchers that are slightly behind; others read the log themselves.
HELD_CHANGES = 128
# A position is trusted for this many intervals, so that one late poll does not send every reader to the database.
TRUSTED_POLLS = 2.5
_POLL_TIMEOUT_SECONDS = 10.0

polls_total = Counter("toolmesh_registry_polls_total", "Polls of the change log, by outcome.", ["outcome"])
watchers = Gauge("toolmesh_registry_watchers", "Watchers that wait for changes.")


class PolledChangeFeed:
    """Polls the log when woken and every `interval` seconds. When it ends, all watchers are disconnected and reconnect
    to another replica."""

    def __init__(self, source: ChangeLog, log: Log, *, interval: float = POLL_SECONDS) -> None:
        self._source, self._trusted = source, TRUSTED_POLLS * interval
        self._poller = Poller(
            "change-feed", self._poll, log, polls_total, interval=interval, within=_POLL_TIMEOUT_SECONDS
        )
        self._horizon = Horizon("", 0, 0)
        # Replaced only when the log moves, because the response cache compares it on every request.
        self._end = Position("", 0)
        self._held: deque[Change] = deque(maxlen=HELD_CHANGES)
        self._polled_at = float("-inf")
        self.start, self.stop = self._poller.start, self._poller.stop
        self.wake, self.end = self._poller.wake, self._poller.end

    def last_position(self) -> Position | None:
        """Return the position of the last poll; None when that poll failed or is too old."""
        return self._end if time.monotonic() - self._polled_at <= self._trusted else None

    async def changes_after(self, position: Position) -> Sequence[Change]:
        """Return the changes after a position, waiting for the next poll if there are none."""
        if position.sequence >= self._horizon.last:
            with watchers.track_inprogress():
                await self._poller.next_poll()
        if self._poller.ended:
            raise watch_ended()
        horizon = self._horizon
        if position.sequence > horizon.last:
            # The watcher read the log after the last poll, unless the log went back.
            horizon = await self._source.horizon()
        if not horizon.reaches(position):
            raise watch_fell_behind()
        held = self._held_beyond(position)
        return held if held or position.sequence >= horizon.last else await self._read(position)

    def _held_beyond(self, position: Position) -> Sequence[Change]:
        if not self._held or self._held[0].sequence > position.sequence + 1:
            return []
        return [change for change in self._held if change.sequence > position.sequence]

    async def _read(self, position: Position) -> Sequence[Change]:
        batch = await self._source.since(position.sequence, HELD_CHANGES)
        if not batch.horizon.reaches(position):
            raise watch_fell_behind()
        return batch.changes

    async def _poll(self) -> None:
        began = time.monotonic()
        horizon = await self._source.horizon()
        known = self._horizon
        if horizon.epoch != known.epoch or horizon.last < known.last:
            # The first poll, or another history: the kept changes do not belong to it.
            self._held.clear()
            known = horizon
        if horizon.last > known.last:
            batch = await self._source.since(max(known.last, horizon.last - HELD_CHANGES), HELD_CHANGES)
            horizon = self._hold(batch.changes, horizon)
        self._horizon, self._polled_at = horizon, began
        end = Position(horizon.epoch, horizon.last)
        if end != self._end:
            self._end = end

    def _hold(self, changes: Sequence[Change], horizon: Horizon) -> Horizon:
        """Keep the changes and return the horizon; changes may be newer than the horizon they were requested for."""
        if not changes:
            return horizon
        if self._held and changes[0].sequence != self._held[-1].sequence + 1:
            self._held.clear()
        self._held.extend(changes)
        return replace(horizon, last=changes[-1].sequence)
