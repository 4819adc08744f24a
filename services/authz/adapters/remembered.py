"""Answers that were given once."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

REMEMBERED = 10_000
T = TypeVar("T")


class Remembered(Generic[T]):
    """A bounded memory of answers by what they rest on. The oldest is forgotten first."""

    def __init__(self, size: int = REMEMBERED) -> None:
        self._size = size
        self._known: dict[Hashable, T] = {}

    def find(self, key: Hashable) -> T | None:
        """Return what was answered to whatever has the same key."""
        return self._known.get(key)

    def keep(self, key: Hashable, answer: T) -> None:
        """Remember an answer."""
        if len(self._known) >= self._size:
            del self._known[next(iter(self._known))]
        self._known[key] = answer
