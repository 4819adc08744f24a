"""The change feed on a change log in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from libs.common.errors import MeshError, Reason
from services.registry.adapters.postgres.change_feed import HELD_CHANGES, TRUSTED_POLLS, PolledChangeFeed
from services.registry.domain.catalog.changes import Change, ChangeBatch, Horizon, Position
from services.registry.domain.model import ToolVersion
from services.registry.tests.conftest import QUIET


class Log:
    """A change log in memory; every change removes a version named by its number."""

    def __init__(self) -> None:
        self.epoch, self.oldest, self.last = "e", 1, 0
        self.reads = 0
        self.failure: Exception | None = None
        self.failed = asyncio.Semaphore(0)

    async def horizon(self) -> Horizon:
        if self.failure is not None:
            self.failed.release()
            raise self.failure
        return Horizon(self.epoch, self.oldest, self.last)

    async def since(self, sequence: int, limit: int) -> ChangeBatch:
        self.reads += 1
        first = max(sequence + 1, self.oldest)
        numbers = range(first, min(self.last, first + limit - 1) + 1)
        return ChangeBatch(await self.horizon(), [Change(n, str(n), None) for n in numbers])

    async def unchanged(self, *, after: int, until: int, limit: int) -> Sequence[ToolVersion]:
        return []


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
async def feed(log: Log) -> AsyncIterator[PolledChangeFeed]:
    feed = PolledChangeFeed(log, QUIET, interval=0.01)
    await feed.start()
    yield feed
    await feed.stop()


async def numbers(feed: PolledChangeFeed, sequence: int) -> list[int]:
    """Return the next changes after a number, skipping empty polls."""
    while True:
        changes = await feed.changes_after(Position("e", sequence))
        if changes:
            return [change.sequence for change in changes]


async def test_a_poll_without_changes_returns_an_empty_result(feed: PolledChangeFeed) -> None:
    assert list(await feed.changes_after(Position("e", 0))) == []


async def test_many_watchers_share_one_reading(feed: PolledChangeFeed, log: Log) -> None:
    waiting = [asyncio.ensure_future(numbers(feed, 0)) for _ in range(20)]
    log.last = 3
    assert await asyncio.gather(*waiting) == [[1, 2, 3]] * 20
    assert log.reads == 1


async def test_a_watcher_slightly_behind_is_served_from_memory(feed: PolledChangeFeed, log: Log) -> None:
    log.last = 5
    await numbers(feed, 0)
    log.last = 9
    assert await numbers(feed, 5) == [6, 7, 8, 9]
    assert await numbers(feed, 2) == [3, 4, 5, 6, 7, 8, 9]
    assert log.reads == 2


async def test_who_is_far_behind_reads_the_log_in_stretches(feed: PolledChangeFeed, log: Log) -> None:
    log.last = HELD_CHANGES * 3
    await numbers(feed, log.last - 1)
    seen = 0
    while seen < log.last:
        batch = await numbers(feed, seen)
        assert batch[0] == seen + 1
        seen = batch[-1]


async def test_who_is_further_behind_than_the_log_is_sent_away(feed: PolledChangeFeed, log: Log) -> None:
    log.last, log.oldest = 50, 40
    await numbers(feed, 49)
    with pytest.raises(MeshError) as caught:
        await feed.changes_after(Position("e", 38))
    assert caught.value.reason is Reason.SERVICE_UNAVAILABLE
    assert (await numbers(feed, 39))[0] == 40


async def test_a_failed_poll_sends_nothing_and_the_next_one_continues(feed: PolledChangeFeed, log: Log) -> None:
    for failure in (MeshError(Reason.SERVICE_UNAVAILABLE), ValueError("unforeseen"), TimeoutError()):
        log.failure, log.failed = failure, asyncio.Semaphore(0)
        await log.failed.acquire()
        waiting = asyncio.ensure_future(feed.changes_after(Position("e", log.last)))
        for _ in range(3):
            await log.failed.acquire()
        # The watcher must not get a heartbeat while polls fail.
        assert not waiting.done()
        log.failure = None
        log.last += 1
        assert [change.sequence for change in await waiting] == [log.last]


@pytest.mark.parametrize(("epoch", "last"), [("another", 5), ("e", 2)])
async def test_a_log_with_another_history_sends_everyone_away(
    feed: PolledChangeFeed, log: Log, epoch: str, last: int
) -> None:
    log.last = 5
    await numbers(feed, 4)
    log.epoch, log.last = epoch, last
    with pytest.raises(MeshError) as caught:
        await numbers(feed, 5)
    assert caught.value.reason is Reason.SERVICE_UNAVAILABLE


async def test_who_read_the_log_later_than_the_feed_waits_for_it(feed: PolledChangeFeed, log: Log) -> None:
    """A snapshot may end at a change that the feed has not polled yet."""
    log.last = 7
    assert list(await feed.changes_after(Position("e", 7))) == []


async def test_the_end_sends_away_those_who_wait_and_those_who_come(log: Log) -> None:
    feed = PolledChangeFeed(log, QUIET, interval=3600)
    await feed.start()
    waiting = asyncio.ensure_future(feed.changes_after(Position("e", 0)))
    await asyncio.sleep(0)
    feed.end()
    for call in (waiting, feed.changes_after(Position("e", 0))):
        with pytest.raises(MeshError) as caught:
            await call
        assert caught.value.reason is Reason.SERVICE_UNAVAILABLE
    await feed.stop()


async def test_the_position_is_known_only_while_polls_succeed(log: Log) -> None:
    feed = PolledChangeFeed(log, QUIET, interval=1000.0)
    assert feed.last_position() is None
    await feed._poll()
    assert feed.last_position() == Position("e", log.last)
    feed._polled_at -= 1000.0 * TRUSTED_POLLS + 1
    assert feed.last_position() is None
