"""BoundedCache evicts the oldest entry, and only when a new key needs the room."""

from __future__ import annotations

from libs.common.runtime.bounded_cache import BoundedCache


def test_a_full_cache_evicts_its_oldest_entry() -> None:
    cache: BoundedCache[str, int] = BoundedCache(2)
    for position, key in enumerate("abc"):
        assert cache.put(key, position) == position
    assert dict(cache) == {"b": 1, "c": 2}


def test_replacing_a_value_evicts_nothing() -> None:
    cache: BoundedCache[str, int] = BoundedCache(2)
    cache.put("a", 1)
    cache.put("b", 2)
    cache.put("a", 3)
    assert dict(cache) == {"a": 3, "b": 2}
