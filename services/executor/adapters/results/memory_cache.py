"""In-memory LRU cache of results, bounded in bytes and entries, invalidated by tool version, with single-flight runs.

A call whose result is being computed waits for that run. If the run yields nothing cacheable, each waiting call runs by
itself; no call waits twice.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from datetime import datetime
from typing import NamedTuple

from prometheus_client import Counter

from libs.common.json.jsonio import MAX_BYTES
from libs.common.runtime.clock import Clock
from services.executor.domain.results.cache import CacheHit, CacheKey

lookups = Counter(
    "toolmesh_executor_result_cache_total",
    "Calls of cacheable tools: fresh (cache hit), shared (waited for another run), run (cache miss) or stale.",
    ["outcome"],
)
_FRESH, _SHARED, _RUN, _STALE = (lookups.labels(outcome) for outcome in ("fresh", "shared", "run", "stale"))
_MAX_ENTRIES = 4096
# Memory of an entry beside its content.
_ENTRY_OVERHEAD = 512
# A single result may use at most this fraction of the cache, and no more than the JSON parser accepts.
_MAX_ENTRY_FRACTION = 8


class _Entry(NamedTuple):
    hit: CacheHit
    fresh_until: float
    stale_until: float
    size: int


class MemoryResultCache:
    """Caches the results of this process and evicts the least recently used."""

    def __init__(self, clock: Clock, *, max_bytes: int, max_entries: int = _MAX_ENTRIES) -> None:
        self._clock, self._max_bytes, self._max_entries = clock, max_bytes, max_entries
        self._entries: OrderedDict[CacheKey, _Entry] = OrderedDict()
        self._leases: dict[CacheKey, RunLease] = {}
        self._active: set[RunLease] = set()
        """All runs, including those that no call can wait for."""
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size(self) -> int:
        """The cached bytes."""
        return self._bytes

    async def enter(self, key: CacheKey) -> CacheHit | RunLease:
        """Return a fresh result, also of a run that is active now; otherwise a lease to run."""
        hit = self._find_fresh(key)
        if hit is not None:
            _FRESH.inc()
            return hit
        active = self._leases.get(key)
        if active is None:
            _RUN.inc()
            lease = self._leases[key] = self._start_lease(key)
            return lease
        await active.ended.wait()
        hit = self._find_fresh(key)
        (_RUN if hit is None else _SHARED).inc()
        return self._start_lease(key) if hit is None else hit

    def find_stale(self, key: CacheKey) -> CacheHit | None:
        """Return a result that is fresh or stale."""
        hit = self._find(key)
        if hit is not None:
            _STALE.inc()
        return hit

    def invalidate(self, tool_digest: str) -> None:
        """Remove every result of a version, and do not cache the results of its active runs."""
        for key in [key for key in self._entries if key.tool_digest == tool_digest]:
            self._remove(key)
        for lease in self._active:
            if lease.key.tool_digest == tool_digest:
                lease.stale = True

    def put(self, key: CacheKey, hit: CacheHit, seconds: float, stale_seconds: float = 0.0) -> None:
        """Cache a result: fresh for `seconds`, then stale for `stale_seconds`. One that is too large is left out."""
        size = len(hit.content) + _ENTRY_OVERHEAD
        self._remove(key)
        if seconds <= 0 or size > min(self._max_bytes // _MAX_ENTRY_FRACTION, MAX_BYTES):
            return
        fresh_until = self._clock.monotonic() + seconds
        self._entries[key] = _Entry(hit, fresh_until, fresh_until + stale_seconds, size)
        self._bytes += size
        while self._bytes > self._max_bytes or len(self._entries) > self._max_entries:
            self._remove(next(iter(self._entries)))

    def end_lease(self, lease: RunLease) -> None:
        """Note that a run has ended."""
        self._active.discard(lease)
        if self._leases.get(lease.key) is lease:
            del self._leases[lease.key]

    def _start_lease(self, key: CacheKey) -> RunLease:
        lease = RunLease(self, key)
        self._active.add(lease)
        return lease

    def _find_fresh(self, key: CacheKey) -> CacheHit | None:
        entry = self._entries.get(key)
        if entry is None or (entry.fresh_until <= self._clock.monotonic() < entry.stale_until):
            return None
        return self._find(key)

    def _find(self, key: CacheKey) -> CacheHit | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.stale_until <= self._clock.monotonic():
            self._remove(key)
            return None
        self._entries.move_to_end(key)
        return entry.hit

    def _remove(self, key: CacheKey) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= entry.size


class RunLease:
    """The lease of the one call that runs for all concurrent calls with the same key."""

    __slots__ = ("_cache", "ended", "key", "stale")

    def __init__(self, cache: MemoryResultCache, key: CacheKey) -> None:
        self._cache, self.key = cache, key
        self.ended = asyncio.Event()
        self.stale = False
        """True once the version changed: the result must not be cached."""

    def keep(self, content: bytes, created: datetime, seconds: float, stale_seconds: float) -> None:
        """Cache the result: fresh for `seconds`, then stale for `stale_seconds`."""
        if not self.stale and not self.ended.is_set():
            self._cache.put(self.key, CacheHit(content, created), seconds, stale_seconds)

    def end(self) -> None:
        """End the run and wake the waiting calls."""
        self._cache.end_lease(self)
        self.ended.set()
