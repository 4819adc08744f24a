"""The invalidation feed of one replica: snapshots, changes, heartbeats and outages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from libs.common.auth.identity import TokenLineage
from libs.common.auth.revocations import RevocationView
from libs.common.errors import MeshError, Reason
from libs.common.runtime.clock import SystemClock
from libs.common.telemetry.log import Log
from libs.common.testing.clock import ManualClock
from services.authz.adapters.postgres.invalidation_feed import PolledInvalidationFeed
from services.authz.domain.model import Invalidation, Revocation, RevocationTarget


class Source:
    """A feed in memory, which can be away."""

    def __init__(self) -> None:
        self.began = datetime.now(UTC)
        self.rows: list[Revocation] = []
        self.last = 0
        self.failure: Exception | None = None
        self.looks = 0

    def revoke(self, name: str, *, lasting: float = 600) -> None:
        self.last += 1
        until = self.began + timedelta(seconds=lasting)
        self.rows.append(Revocation(self.last, RevocationTarget("token", name), "", "operator", self.began, until))

    async def head(self) -> int:
        self.looks += 1
        if self.failure is not None:
            raise self.failure
        return self.last

    async def since(self, sequence: int, now: datetime) -> Sequence[Revocation]:
        return [row for row in self.rows if row.sequence > sequence and row.expires_at > now]


class Replica:
    """A feed over that source, and what it keeps."""

    def __init__(self) -> None:
        self.source = Source()
        self.clock = ManualClock(self.source.began)
        self.view = RevocationView(SystemClock(), max_silence=0.3)
        self.version = "set-1"
        self.refreshed, self.unusable = 0, False
        self.ready = asyncio.Event()
        self.ready.set()
        self.feed = PolledInvalidationFeed(
            self.source,  # type: ignore[arg-type]
            self.view,
            self.clock,
            Log("authz", level="error"),
            policy_set_version=lambda: self.version,
            refresh=self._refresh,
            interval=0.02,
        )

    async def _refresh(self) -> None:
        await self.ready.wait()
        if self.unusable:
            raise MeshError(Reason.POLICY_INVALID)
        self.refreshed += 1
        self.version = f"set-{self.source.last}"

    def refuses(self, name: str) -> bool:
        return self.view.refuses(TokenLineage(frozenset({f"token:{name}"})))


@pytest.fixture
async def replica() -> AsyncIterator[Replica]:
    made = Replica()
    made.source.revoke("first")
    await made.feed.start()
    yield made
    await made.feed.stop()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  (the view has no event)
            await asyncio.sleep(0.005)


async def next_matching(watch: Any, matches: Callable[[Invalidation], object]) -> Invalidation:
    async with asyncio.timeout(10):
        async for invalidation in watch:
            if matches(invalidation):
                return invalidation  # type: ignore[no-any-return]
    raise AssertionError("the watch ended")


def names(invalidation: Invalidation) -> list[str]:
    return [one.target.value for one in invalidation.revocations]


async def test_a_watch_starts_with_a_snapshot_and_sends_every_poll(replica: Replica) -> None:
    watch = replica.feed.watch()
    first = await anext(watch)
    assert (first.snapshot, names(first), first.policy_set_version) == (True, ["first"], "set-1")
    looks = replica.source.looks
    quiet = await anext(watch)
    assert (quiet.snapshot, names(quiet)) == (False, [])
    assert replica.source.looks > looks
    replica.source.revoke("second")
    received = await next_matching(watch, lambda invalidation: invalidation.revocations)
    # The announced policies are already active in this replica.
    assert (names(received), received.policy_set_version, received.sequence) == (["second"], "set-2", 2)
    assert replica.refuses("second")


async def test_a_slow_watcher_misses_no_revocation(replica: Replica) -> None:
    watch = replica.feed.watch()
    await anext(watch)
    for name in ("second", "third"):
        replica.source.revoke(name)
        await until(lambda: replica.refuses(name))  # noqa: B023
    assert names(await anext(watch)) == ["second", "third"]


async def test_a_failed_poll_sends_nothing_and_the_view_expires(replica: Replica) -> None:
    watch = replica.feed.watch()
    await anext(watch)
    assert replica.view.believed()
    replica.source.failure = MeshError(Reason.SERVICE_UNAVAILABLE)
    looks = replica.source.looks
    waiting = asyncio.ensure_future(next_matching(watch, lambda invalidation: invalidation.revocations))
    await until(lambda: not replica.view.believed())
    assert replica.source.looks > looks + 1
    assert not waiting.done()
    replica.source.revoke("meanwhile")
    replica.source.failure = None
    assert names(await waiting) == ["meanwhile"]
    assert replica.view.believed()


async def test_a_revocation_does_not_wait_for_policies_that_take_long_to_be_ready(replica: Replica) -> None:
    watch = replica.feed.watch()
    await anext(watch)
    replica.ready.clear()
    replica.source.revoke("second")
    received = await next_matching(watch, lambda invalidation: invalidation.revocations)
    assert (names(received), replica.refuses("second"), replica.refreshed) == (["second"], True, 1)
    # Later changes of the policies are followed too.
    replica.source.revoke("third")
    assert names(await next_matching(watch, lambda invalidation: invalidation.revocations)) == ["third"]
    replica.ready.set()
    await next_matching(watch, lambda invalidation: invalidation.policy_set_version == "set-3")
    assert replica.view.believed()


async def test_a_failed_refresh_of_policies_sends_nothing(replica: Replica) -> None:
    watch = replica.feed.watch()
    await anext(watch)
    replica.unusable = True
    replica.source.revoke("second")
    waiting = asyncio.ensure_future(next_matching(watch, lambda invalidation: invalidation.revocations))
    await until(lambda: replica.refuses("second") and not replica.view.believed())
    assert not waiting.done()
    replica.unusable = False
    assert names(await waiting) == ["second"]


async def test_a_new_watch_waits_until_the_feed_can_be_read(replica: Replica) -> None:
    replica.source.failure = MeshError(Reason.SERVICE_UNAVAILABLE)
    looks = replica.source.looks
    # Watchers reconnect after silence; the snapshot must not be older than their connection.
    coming = [asyncio.ensure_future(anext(replica.feed.watch())) for _ in range(3)]
    await until(lambda: replica.source.looks > looks + 3 and not replica.view.believed())
    assert not any(one.done() for one in coming)
    replica.source.revoke("meanwhile")
    replica.source.failure = None
    assert [names(await one) for one in coming] == [["first", "meanwhile"]] * 3


async def test_a_new_watch_is_refused_during_shutdown(replica: Replica) -> None:
    replica.feed.end()
    with pytest.raises(MeshError) as caught:
        await anext(replica.feed.watch())
    assert caught.value.reason is Reason.SERVICE_UNAVAILABLE


async def test_a_revocation_returns_when_this_replica_keeps_to_it(replica: Replica) -> None:
    replica.source.revoke("second")
    await replica.feed.wait_until_applied(2)
    assert replica.refuses("second")


async def test_a_restored_database_starts_the_watch_again_with_a_snapshot(replica: Replica) -> None:
    watch = replica.feed.watch()
    replica.source.revoke("second")
    await next_matching(watch, lambda invalidation: "second" in names(invalidation))
    replica.source.rows, replica.source.last = [], 0
    replica.source.revoke("other")
    received = await next_matching(watch, lambda invalidation: invalidation.snapshot)
    assert names(received) == ["other"]
    assert replica.refuses("other")
    assert not replica.refuses("first")


async def test_expired_revocations_are_not_sent(replica: Replica) -> None:
    replica.source.revoke("short", lasting=100)
    await until(lambda: replica.refuses("short"))
    replica.clock.advance(101)
    replica.source.revoke("later")
    await until(lambda: replica.refuses("later"))
    assert names(await anext(replica.feed.watch())) == ["first", "later"]


async def test_watchers_are_sent_away_when_the_replica_ends(replica: Replica) -> None:
    watch = replica.feed.watch()
    await anext(watch)
    replica.feed.end()
    with pytest.raises(MeshError) as caught:
        await next_matching(watch, lambda invalidation: False)
    assert caught.value.reason is Reason.SERVICE_UNAVAILABLE
