"""WatchInvalidations: streams the events that invalidate caches."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from services.authz.domain.model import Invalidation
from services.authz.domain.ports import InvalidationFeed


@dataclass(frozen=True)
class WatchInvalidations:
    """Opens a watch on the feed."""

    feed: InvalidationFeed

    async def execute(self) -> AsyncIterator[Invalidation]:
        """Yield a snapshot, then changes, and a heartbeat at least once a second."""
        async for invalidation in self.feed.watch():
            yield invalidation
