"""The in-memory result cache: fresh, bounded, invalidated by version, with single-lease runs."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from libs.common.json.jsonio import MAX_BYTES
from libs.common.testing.clock import ManualClock
from services.executor.adapters.results.memory_cache import MemoryResultCache, RunLease
from services.executor.domain.results.cache import CacheHit, CacheKey

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def key(arguments: str = "a", digest: str = "d", tenant: str = "", subject: str = "alice") -> CacheKey:
    return CacheKey(digest, "box", arguments, tenant, subject)


def new_cache(clock: ManualClock | None = None, **bounds: int) -> MemoryResultCache:
    return MemoryResultCache(clock or ManualClock(NOW), **{"max_bytes": 1 << 20, **bounds})


async def leads(cache: MemoryResultCache, at: CacheKey) -> RunLease:
    lease = await cache.enter(at)
    assert isinstance(lease, RunLease)
    return lease


async def put(cache: MemoryResultCache, at: CacheKey, content: bytes = b"1", seconds: float = 10.0) -> None:
    lease = await leads(cache, at)
    lease.keep(content, NOW, seconds, 0.0)
    lease.end()


async def is_cached(cache: MemoryResultCache, at: CacheKey) -> bool:
    entered = await cache.enter(at)
    if isinstance(entered, RunLease):
        entered.end()
        return False
    return True


async def test_a_result_is_fresh_for_as_long_as_its_tool_says() -> None:
    clock = ManualClock(NOW)
    cache = new_cache(clock)
    await put(cache, key(), b'{"a":1}')
    clock.advance(9.9)
    assert await cache.enter(key()) == CacheHit(b'{"a":1}', NOW)
    clock.advance(0.2)
    assert not await is_cached(cache, key())
    assert (len(cache), cache.size) == (0, 0)


async def test_a_stale_result_is_found_only_where_it_is_asked_for_and_not_for_ever() -> None:
    clock = ManualClock(NOW)
    cache = new_cache(clock)
    lease = await leads(cache, key())
    lease.keep(b"1", NOW, 10.0, 30.0)
    lease.end()
    clock.advance(10.0)
    assert not await is_cached(cache, key())
    assert cache.find_stale(key()) == CacheHit(b"1", NOW)
    assert cache.find_stale(key(subject="bob")) is None
    clock.advance(30.0)
    assert cache.find_stale(key()) is None
    assert (len(cache), cache.size) == (0, 0)


async def test_different_keys_have_different_results() -> None:
    cache = new_cache()
    await put(cache, key())
    for other in (key("b"), key(digest="e"), key(tenant="acme"), key(subject="bob")):
        assert not await is_cached(cache, other)


async def test_concurrent_identical_calls_run_once() -> None:
    cache = new_cache()
    leader = await leads(cache, key())
    followers = [asyncio.ensure_future(cache.enter(key())) for _ in range(50)]
    await asyncio.sleep(0)
    assert not any(follower.done() for follower in followers)
    other = await leads(cache, key("b"))
    leader.keep(b"1", NOW, 10.0, 0.0)
    leader.end()
    assert await asyncio.gather(*followers) == [CacheHit(b"1", NOW)] * 50
    other.end()


async def test_a_run_without_result_releases_all_waiters_at_once() -> None:
    cache = new_cache()
    leader = await leads(cache, key())
    followers = [asyncio.ensure_future(cache.enter(key())) for _ in range(5)]
    await asyncio.sleep(0)
    leader.end()
    leases = await asyncio.gather(*followers)
    assert all(isinstance(lease, RunLease) for lease in leases)
    # Whichever brings something, it is there for the next.
    for lease in leases:
        assert isinstance(lease, RunLease)
        lease.keep(b"2", NOW, 10.0, 0.0)
        lease.end()
        lease.end()
    assert await is_cached(cache, key())


async def test_a_canceled_waiter_does_not_affect_the_others() -> None:
    cache = new_cache()
    leader = await leads(cache, key())
    left, stays = (asyncio.ensure_future(cache.enter(key())) for _ in range(2))
    await asyncio.sleep(0)
    left.cancel()
    leader.keep(b"1", NOW, 10.0, 0.0)
    leader.end()
    assert await stays == CacheHit(b"1", NOW)


async def test_invalidation_removes_results_and_active_runs_cache_nothing() -> None:
    cache = new_cache()
    await put(cache, key())
    await put(cache, key("b"))
    await put(cache, key(digest="other"))
    lease = await leads(cache, key("c"))
    cache.invalidate("d")
    lease.keep(b"1", NOW, 10.0, 0.0)
    lease.end()
    assert [await is_cached(cache, each) for each in (key(), key("b"), key("c"), key(digest="other"))] == [
        False,
        False,
        False,
        True,
    ]


async def test_invalidation_also_applies_to_runs_after_a_run_without_result() -> None:
    cache = new_cache()
    leader = await leads(cache, key())
    followers = [asyncio.ensure_future(cache.enter(key())) for _ in range(2)]
    await asyncio.sleep(0)
    leader.end()
    leases = await asyncio.gather(*followers)
    cache.invalidate("d")
    for lease in leases:
        assert isinstance(lease, RunLease)
        lease.keep(b"1", NOW, 10.0, 0.0)
        lease.end()
    assert not await is_cached(cache, key())
    await put(cache, key())
    assert await is_cached(cache, key())


async def test_the_least_recently_used_result_is_evicted() -> None:
    cache = new_cache(max_entries=3)
    for name in "abc":
        await put(cache, key(name))
    assert await is_cached(cache, key("a"))
    await put(cache, key("d"))
    assert [await is_cached(cache, key(name)) for name in "abcd"] == [True, False, True, True]


async def test_bytes_are_bounded_in_total_and_per_result() -> None:
    cache = new_cache(max_bytes=80_000)
    for name in range(100):
        await put(cache, key(str(name)), b"x" * 5_000)
        assert cache.size <= 80_000
    assert 10 <= len(cache) <= 16
    await put(cache, key("large"), b"x" * 10_000)
    assert not await is_cached(cache, key("large"))
    before = cache.size
    cache.put(key("99"), CacheHit(b"y", NOW), 10.0)
    assert cache.size == before - 4_999
    assert await cache.enter(key("99")) == CacheHit(b"y", NOW)


async def test_a_cache_of_size_zero_caches_nothing() -> None:
    cache = new_cache(max_bytes=0)
    await put(cache, key())
    assert not await is_cached(cache, key())


async def test_a_result_beyond_the_parser_limit_is_not_cached() -> None:
    cache = new_cache(max_bytes=1 << 30)
    await put(cache, key("fits"), b"x" * (MAX_BYTES - 1024))
    await put(cache, key("large"), b"x" * MAX_BYTES)
    assert [await is_cached(cache, key(name)) for name in ("fits", "large")] == [True, False]
