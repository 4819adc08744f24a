"""The response cache returns a response only while nothing that it depends on has changed."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Hashable, Sequence

import pytest
from google.protobuf.message import Message
from toolmesh.registry.v1 import registry_service_pb2 as pb

from libs.common.testing.clock import ManualClock
from services.registry.domain.catalog.changes import Change, Position
from services.registry.handlers.response_cache import MAX_RESPONSES, CacheClearingWakeup, ResponseCache


class Feed:
    """A feed with a position that the test sets."""

    def __init__(self) -> None:
        self.at: Position | None = Position("epoch", 1)

    def last_position(self) -> Position | None:
        return self.at

    async def changes_after(self, position: Position) -> Sequence[Change]:
        raise AssertionError(f"no reader follows {position} here")


class CountingFactory:
    """Creates a new response each time, and counts."""

    def __init__(self, until: float = math.inf) -> None:
        self.made, self.until = 0, until

    async def __call__(self) -> tuple[pb.ListToolsResponse, float]:
        self.made += 1
        return pb.ListToolsResponse(next_page_token=f"answer {self.made}"), self.until


class CountingWakeup:
    def __init__(self) -> None:
        self.times = 0

    def notify(self) -> None:
        self.times += 1


@pytest.fixture
def feed() -> Feed:
    return Feed()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cache(feed: Feed, clock: ManualClock) -> ResponseCache:
    return ResponseCache(feed, clock)


async def get_or_create(
    cache: ResponseCache, key: Hashable, make: Callable[[], Awaitable[tuple[Message, float]]]
) -> bytes:
    """Use the cache as a handler does."""
    return cache.get(key) or await cache.create(key, make)


async def test_the_same_question_is_answered_again_from_memory(cache: ResponseCache) -> None:
    make = CountingFactory()
    first = await get_or_create(cache, "a", make)
    assert await get_or_create(cache, "a", make) is first
    assert (await get_or_create(cache, "b", make)) is not first
    assert make.made == 2


async def test_equal_requests_of_one_method_share_a_response(cache: ResponseCache) -> None:
    create, request = CountingFactory(), pb.ListToolsRequest(namespace="acme")
    first = await cache.get_or_create("ListTools", request, create)
    assert await cache.get_or_create("ListTools", pb.ListToolsRequest(namespace="acme"), create) is first
    assert create.made == 1
    await cache.get_or_create("ResolveTool", request, create)
    await cache.get_or_create("ListTools", pb.ListToolsRequest(namespace="other"), create)
    assert create.made == 3
    cache.clear()
    assert await cache.get_or_create("ListTools", request, create) is not first


@pytest.mark.parametrize("now", [Position("epoch", 2), Position("other", 1)])
async def test_a_change_that_the_feed_saw_ends_every_answer(cache: ResponseCache, feed: Feed, now: Position) -> None:
    make = CountingFactory()
    await get_or_create(cache, "a", make)
    feed.at = now
    await get_or_create(cache, "a", make)
    assert make.made == 2


async def test_while_the_log_is_not_seen_nothing_is_remembered(cache: ResponseCache, feed: Feed) -> None:
    make, known = CountingFactory(), CountingFactory()
    await get_or_create(cache, "known", known)
    feed.at = None
    await get_or_create(cache, "known", known)
    await get_or_create(cache, "a", make)
    await get_or_create(cache, "a", make)
    assert (make.made, known.made) == (2, 2)
    feed.at = Position("epoch", 1)
    await get_or_create(cache, "known", known)
    assert known.made == 3


async def test_an_answer_that_was_being_made_while_the_log_moved_is_not_kept(cache: ResponseCache, feed: Feed) -> None:
    make = CountingFactory()

    async def overtaken() -> tuple[pb.ListToolsResponse, float]:
        feed.at = Position("epoch", 2)
        return await make()

    await get_or_create(cache, "a", overtaken)
    await get_or_create(cache, "a", make)
    assert make.made == 2


async def test_an_answer_that_was_being_made_while_this_process_wrote_is_not_kept(cache: ResponseCache) -> None:
    make = CountingFactory()

    async def overtaken() -> tuple[pb.ListToolsResponse, float]:
        made = await make()
        cache.clear()
        return made

    await get_or_create(cache, "a", overtaken)
    await get_or_create(cache, "a", make)
    assert make.made == 2


async def test_the_wakeup_clears_the_cache_before_it_notifies(cache: ResponseCache) -> None:
    make, wakeup = CountingFactory(), CountingWakeup()
    await get_or_create(cache, "a", make)
    CacheClearingWakeup(wakeup, cache).notify()
    await get_or_create(cache, "a", make)
    assert (make.made, wakeup.times) == (2, 1)


async def test_an_answer_ends_at_its_own_moment(cache: ResponseCache, clock: ManualClock) -> None:
    make = CountingFactory(until=clock.now().timestamp() + 60)
    await get_or_create(cache, "a", make)
    clock.advance(59)
    await get_or_create(cache, "a", make)
    assert make.made == 1
    clock.advance(1)
    await get_or_create(cache, "a", make)
    assert make.made == 2


async def test_a_failure_is_not_remembered(cache: ResponseCache) -> None:
    make = CountingFactory()

    async def fails() -> tuple[pb.ListToolsResponse, float]:
        raise LookupError

    with pytest.raises(LookupError):
        await get_or_create(cache, "a", fails)
    assert pb.ListToolsResponse.FromString(await get_or_create(cache, "a", make)).next_page_token == "answer 1"


async def test_memory_is_bounded_in_number_and_size(feed: Feed, clock: ManualClock) -> None:
    make = CountingFactory()
    cache = ResponseCache(feed, clock)
    for number in range(MAX_RESPONSES + 10):
        await get_or_create(cache, number, make)
    assert len(cache._responses) == MAX_RESPONSES
    small = ResponseCache(feed, clock, max_bytes=100)
    for number in range(50):
        await get_or_create(small, number, make)
    assert small._bytes == sum(len(known.payload) for known in small._responses.values()) <= 100
    await get_or_create(small, 49, make)
    assert make.made == MAX_RESPONSES + 60
