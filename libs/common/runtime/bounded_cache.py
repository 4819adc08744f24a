"""A dictionary with a maximum size, for caches on the warm path."""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedCache(dict[K, V]):
    """A dict that evicts its oldest entry when `put` would exceed `max_size`.

    Reads are plain dict reads and do not count as use. Where recently read entries must survive, use
    `cachetools.LRUCache`.
    """

    __slots__ = ("max_size",)

    def __init__(self, max_size: int) -> None:
        super().__init__()
        self.max_size = max_size

    def put(self, key: K, value: V) -> V:
        """Store the value, evict the oldest entry if the cache is full, and return the value."""
        if key not in self and len(self) >= self.max_size:
            del self[next(iter(self))]
        self[key] = value
        return value
