"""Polls the feed of invalidations for one replica, updates its revocation view, and serves the watchers."""

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

# Also the interval of heartbeats: each successful poll without news is sent as one. A failed poll sends nothing, so
# silence means that the state is unknown.
POLL_SECONDS = 0.5
_POLL_TIMEOUT = 2.0
# How long a poll waits for the policies to be loaded.
_REFRESH_TIMEOUT = 0.25
# How long RevokeToken waits until this replica has applied the revocation.
_APPLY_TIMEOUT = 1.0

polls_total = Counter("toolmesh_authz_feed_looks_total", "Polls of the feed of invalidations, by outcome.", ["outcome"])
watchers = Gauge("toolmesh_authz_invalidation_watchers", "Services that watch the invalidations.")


class PolledInvalidationFeed:
    """Polls the feed when it is woken and every `interval` seconds. On shutdown every watch ends; the watchers
    reconnect to another replica."""

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
        """`refresh` loads the active policies. It runs whenever the feed grew and is awaited for up to _REFRESH_TIMEOUT
        before watchers are notified; then it continues in the background, because a revocation must not wait for it."""
        self._source, self._view, self._clock = source, view, clock
        self._version, self._refresh = policy_set_version, refresh
        self._poller = Poller(
            "invalidation-feed", self._poll, log, polls_total, interval=interval, within=_POLL_TIMEOUT
        )
        self._revocations: dict[int, Revocation] = {}
        self._sequence = -1
        self._behind = False
        self._refreshing: asyncio.Future[object] | None = None
        self.start, self.stop = self._poller.start, self._poller.stop
        self.wake, self.end = self._poller.wake, self._poller.end
        self._notify: Callable[[], None] = self.wake

    def attach(self, notify: Callable[[], None]) -> None:
        """Use this function to wake all replicas, including this one."""
        self._notify = notify

    def announce(self) -> None:
        self._notify()

    async def wait_until_applied(self, sequence: int) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_APPLY_TIMEOUT):
                while self._sequence < sequence and not self._poller.ended:
                    self.wake()
                    await self._poller.next_poll()

    async def watch(self) -> AsyncIterator[Invalidation]:
        with watchers.track_inprogress():
            # The snapshot is sent only after a successful poll. Without that, a client that reconnects during an outage
            # of the database would get an old state as a fresh one, again and again.
            self.wake()
            await self._poller.next_poll()
            if self._poller.ended:
                raise watch_ended()
            sent = self._sequence
            yield Invalidation(sent, self._version(), tuple(self._revocations.values()), snapshot=True)
            while True:
                if self._sequence == sent:
                    await self._poller.next_poll()
                if self._poller.ended:
                    raise watch_ended()
                if self._sequence < sent:
                    # The database was restored to an earlier state: start again with a snapshot.
                    sent = self._sequence
                    yield Invalidation(sent, self._version(), tuple(self._revocations.values()), snapshot=True)
                    continue
                new = tuple(self._revocations_after(sent))
                sent = self._sequence
                yield Invalidation(sent, self._version(), new)

    def _revocations_after(self, sequence: int) -> Iterator[Revocation]:
        if self._sequence > sequence:
            yield from (revocation for number, revocation in self._revocations.items() if number > sequence)

    async def _poll(self) -> None:
        head = await self._source.head()
        snapshot = self._sequence < 0 or head < self._sequence
        if snapshot or head > self._sequence:
            await self._read(head, snapshot)
            self._behind = True
        if self._refresh is not None and (self._behind or self._refreshing is not None):
            await self._refresh_policies(self._refresh)
        self._view.apply((), policy_set_version=self._version(), snapshot=False)

    async def _read(self, head: int, snapshot: bool) -> None:
        now = self._clock.now()
        new = await self._source.since(-1 if snapshot else self._sequence, now)
        unexpired = {} if snapshot else {n: one for n, one in self._revocations.items() if one.expires_at > now}
        self._revocations = unexpired | {revocation.sequence: revocation for revocation in new}
        # Revocations that were added after the head was read are already included; they are sent twice.
        self._sequence = head
        self._view.apply(map(_revoked, new), policy_set_version=self._version(), snapshot=snapshot)

    async def _refresh_policies(self, refresh: Callable[[], Awaitable[object]]) -> None:
        """Load the active policies. If that fails, this poll and all later ones fail, so watchers get no heartbeat."""
        if self._refreshing is None:
            self._behind, self._refreshing = False, asyncio.ensure_future(refresh())
        await asyncio.wait({self._refreshing}, timeout=_REFRESH_TIMEOUT)
        if self._refreshing.done():
            done, self._refreshing = self._refreshing, None
            self._behind = self._behind or done.cancelled() or done.exception() is not None
            done.result()


def _revoked(revocation: Revocation) -> Revoked:
    target = revocation.target
    return Revoked(
        target.kind,
        target.value,
        revocation.revoked_at.timestamp(),
        revocation.expires_at.timestamp(),
        revocation.tenant,
    )
