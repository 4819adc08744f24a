"""The one reader of the feed in a process: keeps this replica's own view, and tells everyone who watches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress

from prometheus_client import Counter, Gauge

from libs.common.auth.revocations import RevocationView, Revoked
from libs.common.runtime.clock import Clock
from libs.common.runtime.poller import Poller
from libs.common.telemetry.log import Log
from services.authz.adapters.postgres.revocations import PostgresRevocations
from services.authz.domain.errors import watch_ended
from services.authz.domain.model import Invalidation, Revocation

# Also how often watchers hear a word: each look that finds nothing new is told as one. A look that fails is not told, so
# that silence means that nothing is known.
POLL_SECONDS = 0.5
_LOOK_SECONDS = 2.0
# How long a look waits for the policies to follow.
_FOLLOW_SECONDS = 0.25
# How long a revocation waits for this replica's own view before its answer goes out anyway.
_REACH_SECONDS = 1.0

looks_total = Counter("toolmesh_authz_feed_looks_total", "Looks at the feed of invalidations, by outcome.", ["outcome"])
watchers = Gauge("toolmesh_authz_invalidation_watchers", "Services that follow the invalidations.")


class PolledInvalidationFeed:
    """Looks at the feed when the wakeup rings and every `interval` seconds anyway. When it ends, every watcher is sent away: they come
    back to another replica, or to this one's successor."""

    def __init__(
        self,
        source: PostgresRevocations,
        view: RevocationView,
        clock: Clock,
        log: Log,
        *,
        policy_set_version: Callable[[], str],
        refresh: Callable[[], Awaitable[object]] | None = None,
        interval: float = POLL_SECONDS,
    ) -> None:
        """`refresh` is called whenever the feed grew, and awaited for a moment before anyone is told: what they are told is nearly always
        true here already. One that takes longer goes on meanwhile, for a revocation must not wait for policies."""
        self._source, self._view, self._clock = source, view, clock
        self._version, self._refresh = policy_set_version, refresh
        self._lookout = Poller(
            "invalidation-feed", self._look, log, looks_total, interval=interval, within=_LOOK_SECONDS
        )
        self._known: dict[int, Revocation] = {}
        self._sequence = -1
        self._behind = False
        self._refreshing: asyncio.Future[object] | None = None
        self.start, self.stop = self._lookout.start, self._lookout.stop
        self.wake, self.end = self._lookout.wake, self._lookout.end
        self._ring: Callable[[], None] = self.wake

    def attach(self, ring: Callable[[], None]) -> None:
        """Use this wakeup to wake the other replicas; it wakes this one too."""
        self._ring = ring

    def announce(self) -> None:
        self._ring()

    async def reached(self, sequence: int) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_REACH_SECONDS):
                while self._sequence < sequence and not self._lookout.ended:
                    self.wake()
                    await self._lookout.next_poll()

    async def watch(self) -> AsyncIterator[Invalidation]:
        with watchers.track_inprogress():
            # Only a word after a look counts. What was known before it may be of any age, and whoever follows comes back to a replica that
            # has fallen silent again and again: told at once, it would be believed for as long as the database is away.
            self.wake()
            await self._lookout.next_poll()
            if self._lookout.ended:
                raise watch_ended()
            told = self._sequence
            yield Invalidation(told, self._version(), tuple(self._known.values()), snapshot=True)
            while True:
                if self._sequence == told:
                    await self._lookout.next_poll()
                if self._lookout.ended:
                    raise watch_ended()
                if self._sequence < told:
                    # Another history than the one told so far: it is told from its beginning.
                    told = self._sequence
                    yield Invalidation(told, self._version(), tuple(self._known.values()), snapshot=True)
                    continue
                new = tuple(self._beyond(told))
                told = self._sequence
                yield Invalidation(told, self._version(), new)

    def _beyond(self, sequence: int) -> Iterator[Revocation]:
        if self._sequence > sequence:
            yield from (one for place, one in self._known.items() if place > sequence)

    async def _look(self) -> None:
        head = await self._source.head()
        snapshot = self._sequence < 0 or head < self._sequence
        if snapshot or head > self._sequence:
            await self._read(head, snapshot)
            self._behind = True
        if self._refresh is not None and (self._behind or self._refreshing is not None):
            await self._follow(self._refresh)
        self._view.apply((), policy_set_version=self._version(), snapshot=False)

    async def _read(self, head: int, snapshot: bool) -> None:
        now = self._clock.now()
        found = await self._source.since(-1 if snapshot else self._sequence, now)
        kept = {} if snapshot else {n: one for n, one in self._known.items() if one.expires_at > now}
        self._known = kept | {one.sequence: one for one in found}
        # What was added after the head was read is known already; it is only told once more.
        self._sequence = head
        self._view.apply(map(_revoked, found), policy_set_version=self._version(), snapshot=snapshot)

    async def _follow(self, refresh: Callable[[], Awaitable[object]]) -> None:
        """Have the policies follow. Where they cannot, this look fails and each one after it: nothing is told, and silence counts."""
        if self._refreshing is None:
            self._behind, self._refreshing = False, asyncio.ensure_future(refresh())
        await asyncio.wait({self._refreshing}, timeout=_FOLLOW_SECONDS)
        if self._refreshing.done():
            done, self._refreshing = self._refreshing, None
            self._behind = self._behind or done.cancelled() or done.exception() is not None
            done.result()


def _revoked(one: Revocation) -> Revoked:
    return Revoked(one.target.kind, one.target.value, one.revoked_at.timestamp(), one.expires_at.timestamp())
