"""Caches serialized responses while the registry does not change.

Most requests repeat recent ones, and the registry changes rarely. A response is stored under the position of the change
log at which it was created. The cache is cleared when the feed sees a change of another replica, and at once after a
change by this process. While the position of the log is unknown, nothing is cached.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import NamedTuple

from google.protobuf.message import Message

from libs.common.runtime.clock import Clock
from services.registry.domain.catalog.changes import Position
from services.registry.domain.ports import ChangeFeed, Wakeup

MAX_RESPONSES = 4096
MAX_BYTES = 32 * 1024 * 1024

CreateResponse = Callable[[], Awaitable[tuple[Message, float]]]
"""Creates a response, and returns it with the Unix time at which it expires."""


class _CachedResponse(NamedTuple):
    payload: bytes
    expires: float


class ResponseCache:
    """Stores responses in their wire form, because serialization costs more than the lookup."""

    def __init__(self, feed: ChangeFeed, clock: Clock, *, max_bytes: int = MAX_BYTES) -> None:
        self._feed, self._clock, self._max_bytes = feed, clock, max_bytes
        self._responses: OrderedDict[Hashable, _CachedResponse] = OrderedDict()
        self._bytes = 0
        self._position: Position | None = None
        self._writes = 0

    async def get_or_create(self, method: str, request: Message, create: CreateResponse) -> bytes:
        """Return the cached response to a request, or create and cache it."""
        key = (method, request.SerializeToString(deterministic=True))
        return self.get(key) or await self.create(key, create)

    def get(self, key: Hashable) -> bytes | None:
        """Return the cached response of a key; None if there is none or it has expired."""
        self._synchronize()
        cached = self._responses.get(key)
        if cached is None or (cached.expires != math.inf and cached.expires <= self._clock.now().timestamp()):
            return None
        return cached.payload

    async def create(self, key: Hashable, create: CreateResponse) -> bytes:
        """Create a response and cache it under a key. Failures are not cached."""
        position, writes = self._synchronize(), self._writes
        message, expires = await create()
        payload = message.SerializeToString()
        # A response that was read before a change must not be cached after it.
        if position is not None and position == self._synchronize() and writes == self._writes:
            self._store(key, _CachedResponse(payload, expires))
        return payload

    def clear(self) -> None:
        """Drop all responses after a change by this process, so that its caller reads its own write."""
        self._writes += 1
        self._responses.clear()
        self._bytes = 0

    def _synchronize(self) -> Position | None:
        """Return the position of the change log, and drop all responses if it has moved."""
        position = self._feed.last_position()
        if position is not self._position and (position != self._position or position is None):
            self._responses.clear()
            self._bytes, self._position = 0, position
        return position

    def _store(self, key: Hashable, response: _CachedResponse) -> None:
        replaced = self._responses.pop(key, None)
        self._bytes += len(response.payload) - (len(replaced.payload) if replaced else 0)
        self._responses[key] = response
        while len(self._responses) > MAX_RESPONSES or self._bytes > self._max_bytes:
            self._bytes -= len(self._responses.popitem(last=False)[1].payload)


class CacheClearingWakeup:
    """Clears the response cache of this process before it notifies all replicas."""

    def __init__(self, wakeup: Wakeup, cache: ResponseCache) -> None:
        self._wakeup, self._cache = wakeup, cache

    def notify(self) -> None:
        """Clear the cache, then notify."""
        self._cache.clear()
        self._wakeup.notify()
