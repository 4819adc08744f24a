"""Answers that were given once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

REMEMBERED = 10_000
T = TypeVar("T")


class Remembered(Generic[T]):
    """A bounded memory of answers by what they rest on. The oldest is forgotten first."""

    def __init__(self, size: int = REMEMBERED) -> None:
        self._size = size
        # Not a plain dict: taking the first of one again and again means to pass all that were taken before.
        self._known: OrderedDict[Hashable, T] = OrderedDict()

    def find(self, key: Hashable) -> T | None:
        """Return what was answered to whatever has the same key."""
        return self._known.get(key)

    def keep(self, key: Hashable, answer: T) -> None:
        """Remember an answer."""
        if len(self._known) >= self._size:
            self._known.popitem(last=False)
        self._known[key] = answer
