"""Answers that are given again while nothing changed.

What most callers ask is what somebody asked a moment ago, and the registry changes rarely. An answer is remembered under the
state of the change log that it was made in, and forgotten with it: by another replica's change as soon as the feed sees it,
by a change of this process at once. A log that was not looked at lately vouches for nothing.
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

MAX_ANSWERS = 4096
MAX_BYTES = 32 * 1024 * 1024


class _Known(NamedTuple):
    written: bytes
    until: float


class Answers:
    """Remembers answers in the form they are sent in: writing one out takes longer than to remember it."""

    def __init__(self, feed: ChangeFeed, clock: Clock, *, max_bytes: int = MAX_BYTES) -> None:
        self._feed, self._clock, self._max_bytes = feed, clock, max_bytes
        self._known: OrderedDict[Hashable, _Known] = OrderedDict()
        self._bytes = 0
        self._seen: Position | None = None
        self._writes = 0

    def recall_of(self, method: str) -> Callable[[bytes], bytes | None]:
        """Return what knows the answers to requests of a method, both in the form they are sent in."""
        return lambda payload: self.known((method, payload))

    async def give(self, method: str, request: Message, make: Callable[[], Awaitable[tuple[Message, float]]]) -> bytes:
        """Return the answer to a request: the one that is known, else a new one."""
        key = (method, request.SerializeToString(deterministic=True))
        return self.known(key) or await self.make(key, make)

    def known(self, key: Hashable) -> bytes | None:
        """Return the answer that is known under a key, if one is and still holds."""
        self._current()
        known = self._known.get(key)
        if known is None or (known.until != math.inf and known.until <= self._clock.now().timestamp()):
            return None
        return known.written

    async def make(self, key: Hashable, make: Callable[[], Awaitable[tuple[Message, float]]]) -> bytes:
        """Make an answer and keep it under a key. `make` also says until when it holds, whatever happens to the log. A failure
        is never remembered."""
        seen, writes = self._current(), self._writes
        message, until = await make()
        written = message.SerializeToString()
        # Read before a change and kept after it, the answer would outlive what it was read from.
        if seen is not None and seen == self._current() and writes == self._writes:
            self._keep(key, _Known(written, until))
        return written

    def forget(self) -> None:
        """Forget everything: this process has changed the registry, and whoever did must see it."""
        self._writes += 1
        self._known.clear()
        self._bytes = 0

    def _current(self) -> Position | None:
        """Return the state of the log, after forgetting what was made in another."""
        seen = self._feed.seen()
        if seen is not self._seen and (seen != self._seen or seen is None):
            self._known.clear()
            self._bytes, self._seen = 0, seen
        return seen

    def _keep(self, key: Hashable, made: _Known) -> None:
        old = self._known.pop(key, None)
        self._bytes += len(made.written) - (len(old.written) if old else 0)
        self._known[key] = made
        while len(self._known) > MAX_ANSWERS or self._bytes > self._max_bytes:
            self._bytes -= len(self._known.popitem(last=False)[1].written)


class CacheClearingWakeup:
    """Rings, and has this process forget its answers first."""

    def __init__(self, wakeup: Wakeup, answers: Answers) -> None:
        self._wakeup, self._answers = wakeup, answers

    def notify(self) -> None:
        """Tell every replica, beginning with this one."""
        self._answers.forget()
        self._wakeup.notify()
