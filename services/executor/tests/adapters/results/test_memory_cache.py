"""Results that are used again: fresh, bounded, dropped with their version, and run for once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from libs.common.json.jsonio import MAX_BYTES
from libs.common.runtime.clock import ManualClock
from services.executor.adapters.results.memory_cache import MemoryResultCache, SharedFlight
from services.executor.domain.results.cache import CacheHit, CacheKey

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def key(arguments: str = "a", digest: str = "d", tenant: str = "", subject: str = "alice") -> CacheKey:
    return CacheKey(digest, arguments, tenant, subject)


def cache(clock: ManualClock | None = None, **bounds: int) -> MemoryResultCache:
    return MemoryResultCache(clock or ManualClock(NOW), **{"max_bytes": 1 << 20, **bounds})


async def leads(found: MemoryResultCache, at: CacheKey) -> SharedFlight:
    flight = await found.enter(at)
    assert isinstance(flight, SharedFlight)
    return flight


async def put(found: MemoryResultCache, at: CacheKey, content: bytes = b"1", seconds: float = 10.0) -> None:
    flight = await leads(found, at)
    flight.keep(content, NOW, seconds)
    flight.end()


async def is_kept(found: MemoryResultCache, at: CacheKey) -> bool:
    entered = await found.enter(at)
    if isinstance(entered, SharedFlight):
        entered.end()
        return False
    return True


async def test_a_result_is_fresh_for_as_long_as_its_tool_says() -> None:
    clock = ManualClock(NOW)
    found = cache(clock)
    await put(found, key(), b'{"a":1}')
    clock.advance(9.9)
    assert await found.enter(key()) == CacheHit(b'{"a":1}', NOW)
    clock.advance(0.2)
    assert not await is_kept(found, key())
    assert (len(found), found.size) == (0, 0)


async def test_nobody_gets_what_another_asked_for() -> None:
    found = cache()
    await put(found, key())
    for other in (key("b"), key(digest="e"), key(tenant="acme"), key(subject="bob")):
        assert not await is_kept(found, other)


async def test_identical_calls_at_once_run_once() -> None:
    found = cache()
    leader = await leads(found, key())
    followers = [asyncio.ensure_future(found.enter(key())) for _ in range(50)]
    await asyncio.sleep(0)
    assert not any(follower.done() for follower in followers)
    other = await leads(found, key("b"))
    leader.keep(b"1", NOW, 10.0)
    leader.end()
    assert await asyncio.gather(*followers) == [CacheHit(b"1", NOW)] * 50
    other.end()


async def test_a_run_that_brings_nothing_delays_the_others_and_never_queues_them() -> None:
    found = cache()
    leader = await leads(found, key())
    followers = [asyncio.ensure_future(found.enter(key())) for _ in range(5)]
    await asyncio.sleep(0)
    leader.end()
    flights = await asyncio.gather(*followers)
    assert all(isinstance(flight, SharedFlight) for flight in flights)
    # Whichever brings something, it is there for the next.
    for flight in flights:
        assert isinstance(flight, SharedFlight)
        flight.keep(b"2", NOW, 10.0)
        flight.end()
        flight.end()
    assert await is_kept(found, key())


async def test_a_waiter_that_leaves_leaves_the_others_alone() -> None:
    found = cache()
    leader = await leads(found, key())
    left, stays = (asyncio.ensure_future(found.enter(key())) for _ in range(2))
    await asyncio.sleep(0)
    left.cancel()
    leader.keep(b"1", NOW, 10.0)
    leader.end()
    assert await stays == CacheHit(b"1", NOW)


async def test_what_changed_is_forgotten_and_its_runs_under_way_keep_nothing() -> None:
    found = cache()
    await put(found, key())
    await put(found, key("b"))
    await put(found, key(digest="other"))
    flight = await leads(found, key("c"))
    found.forget("d")
    flight.keep(b"1", NOW, 10.0)
    flight.end()
    assert [await is_kept(found, each) for each in (key(), key("b"), key("c"), key(digest="other"))] == [
        False,
        False,
        False,
        True,
    ]


async def test_who_runs_alone_after_a_run_that_brought_nothing_keeps_nothing_of_what_changed_meanwhile() -> None:
    found = cache()
    leader = await leads(found, key())
    followers = [asyncio.ensure_future(found.enter(key())) for _ in range(2)]
    await asyncio.sleep(0)
    leader.end()
    flights = await asyncio.gather(*followers)
    found.forget("d")
    for flight in flights:
        assert isinstance(flight, SharedFlight)
        flight.keep(b"1", NOW, 10.0)
        flight.end()
    assert not await is_kept(found, key())
    await put(found, key())
    assert await is_kept(found, key())


async def test_the_least_used_makes_room() -> None:
    found = cache(max_entries=3)
    for name in "abc":
        await put(found, key(name))
    assert await is_kept(found, key("a"))
    await put(found, key("d"))
    assert [await is_kept(found, key(name)) for name in "abcd"] == [True, False, True, True]


async def test_bytes_are_bounded_and_none_is_too_large_for_the_rest() -> None:
    found = cache(max_bytes=80_000)
    for name in range(100):
        await put(found, key(str(name)), b"x" * 5_000)
        assert found.size <= 80_000
    assert 10 <= len(found) <= 16
    await put(found, key("large"), b"x" * 10_000)
    assert not await is_kept(found, key("large"))
    before = found.size
    found.keep(key("99"), CacheHit(b"y", NOW), 10.0)
    assert found.size == before - 4_999
    assert await found.enter(key("99")) == CacheHit(b"y", NOW)


async def test_a_cache_of_no_size_keeps_nothing() -> None:
    found = cache(max_bytes=0)
    await put(found, key())
    assert not await is_kept(found, key())


async def test_however_much_room_there_is_only_what_a_strict_reader_takes_is_kept() -> None:
    found = cache(max_bytes=1 << 30)
    await put(found, key("fits"), b"x" * (MAX_BYTES - 1024))
    await put(found, key("large"), b"x" * MAX_BYTES)
    assert [await is_kept(found, key(name)) for name in ("fits", "large")] == [True, False]
