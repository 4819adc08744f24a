"""Results that may be used again, in memory: bounded in bytes and number, dropped with their version, and run for once.

Whoever asks for what somebody else is just running waits for that one run. If it brings nothing that may be used again, everybody who
waited runs on its own: nobody waits twice.
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
    "Calls of tools whose results may be used again: fresh, shared (waited for another call's run) or run.",
    ["outcome"],
)
_FRESH, _SHARED, _RUN = (lookups.labels(outcome) for outcome in ("fresh", "shared", "run"))
_MAX_ENTRIES = 4096
# What an entry takes beside its content.
_OVERHEAD = 512
# No single result may push out more than this part of the others; and it must be one that a strict reader takes.
_LARGEST_PART = 8


class _Entry(NamedTuple):
    kept: CacheHit
    until: float
    size: int


class MemoryResultCache:
    """Remembers results of this process. The least recently used one makes room."""

    def __init__(self, clock: Clock, *, max_bytes: int, max_entries: int = _MAX_ENTRIES) -> None:
        self._clock, self._max_bytes, self._max_entries = clock, max_bytes, max_entries
        self._entries: OrderedDict[CacheKey, _Entry] = OrderedDict()
        self._flights: dict[CacheKey, SharedFlight] = {}
        self._under_way: set[SharedFlight] = set()
        """Every run, also of those that nobody waits for."""
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size(self) -> int:
        """How many bytes are held."""
        return self._bytes

    async def enter(self, key: CacheKey) -> CacheHit | SharedFlight:
        """Return a fresh result, waiting for a run under way; or the right to run."""
        kept = self._fresh(key)
        if kept is not None:
            _FRESH.inc()
            return kept
        under_way = self._flights.get(key)
        if under_way is None:
            _RUN.inc()
            flight = self._flights[key] = self._begin(key)
            return flight
        await under_way.ended.wait()
        kept = self._fresh(key)
        (_RUN if kept is None else _SHARED).inc()
        return self._begin(key) if kept is None else kept

    def forget(self, tool_digest: str) -> None:
        """Drop every result of a version, and keep none of its runs under way: something about it changed."""
        for key in [key for key in self._entries if key.tool_digest == tool_digest]:
            self._drop(key)
        for flight in self._under_way:
            if flight.key.tool_digest == tool_digest:
                flight.stale = True

    def keep(self, key: CacheKey, kept: CacheHit, seconds: float) -> None:
        """Remember a result for so many seconds, if there is room for it."""
        size = len(kept.content) + _OVERHEAD
        self._drop(key)
        if seconds <= 0 or size > min(self._max_bytes // _LARGEST_PART, MAX_BYTES):
            return
        self._entries[key] = _Entry(kept, self._clock.monotonic() + seconds, size)
        self._bytes += size
        while self._bytes > self._max_bytes or len(self._entries) > self._max_entries:
            self._drop(next(iter(self._entries)))

    def leave(self, flight: SharedFlight) -> None:
        """Take note that a run is over."""
        self._under_way.discard(flight)
        if self._flights.get(flight.key) is flight:
            del self._flights[flight.key]

    def _begin(self, key: CacheKey) -> SharedFlight:
        flight = SharedFlight(self, key)
        self._under_way.add(flight)
        return flight

    def _fresh(self, key: CacheKey) -> CacheHit | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.until <= self._clock.monotonic():
            self._drop(key)
            return None
        self._entries.move_to_end(key)
        return entry.kept

    def _drop(self, key: CacheKey) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= entry.size


class SharedFlight:
    """The right to run for everybody who would get the same."""

    __slots__ = ("_cache", "ended", "key", "stale")

    def __init__(self, cache: MemoryResultCache, key: CacheKey) -> None:
        self._cache, self.key = cache, key
        self.ended = asyncio.Event()
        self.stale = False
        """True once its version changed: what it brings may be another version's truth."""

    def keep(self, content: bytes, created: datetime, seconds: float) -> None:
        """Keep the result for so many seconds."""
        if not self.stale and not self.ended.is_set():
            self._cache.keep(self.key, CacheHit(content, created), seconds)

    def end(self) -> None:
        """Let those go on who wait for it."""
        self._cache.leave(self)
        self.ended.set()
