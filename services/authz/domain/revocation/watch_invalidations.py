"""WatchInvalidations: tells those who remember answers what makes them worthless."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from services.authz.domain.model import Invalidation
from services.authz.domain.ports import InvalidationFeed


@dataclass(frozen=True)
class WatchInvalidations:
    """Opens watches."""

    feed: InvalidationFeed

    async def __call__(self) -> AsyncIterator[Invalidation]:
        """Yield a snapshot, then changes, and a word at least once a second: silence means that the watch is broken."""
        async for word in self.feed.watch():
            yield word
