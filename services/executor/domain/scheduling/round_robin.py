"""Orders waiting calls: tenants take turns, within a tenant its subjects do, and a subject's own calls are ranked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heapreplace
from typing import Any, Generic, Protocol, TypeVar

# Who was served longest ago is forgotten first, and is first in turn all the same.
_MAX_REMEMBERED = 10_000


class Waiter(Protocol):
    """A waiting call. Sorts before the calls of its subject that come after it."""

    @property
    def tenant(self) -> str:
        """The tenant of the caller."""
        ...

    @property
    def subject(self) -> str:
        """The caller."""
        ...

    def __lt__(self, other: Any, /) -> bool: ...


T = TypeVar("T", bound=Waiter)


class RoundRobin:
    """Remembers which tenants and subjects were served last. The one that was served longest ago is next."""

    def __init__(self) -> None:
        self._served: dict[tuple[str, ...], int] = {}
        self._count = 0

    def serve(self, waiter: Waiter) -> None:
        """Note that a call begins."""
        self._count += 1
        for key in ((waiter.tenant,), (waiter.tenant, waiter.subject)):
            # Last in the order of the dictionary, so that the first is the one to forget.
            self._served.pop(key, None)
            self._served[key] = self._count
        while len(self._served) > _MAX_REMEMBERED:
            del self._served[next(iter(self._served))]

    def order(self, waiters: Iterable[T]) -> Iterator[T]:
        """Yield the calls in the order in which they would be served, if each began at once. Lazy."""
        tenants: dict[str, dict[str, list[T]]] = {}
        for waiter in waiters:
            tenants.setdefault(waiter.tenant, {}).setdefault(waiter.subject, []).append(waiter)
        return _interleave(
            _Line(self._last((tenant,)), _interleave([self._line(tenant, *each) for each in subjects.items()]))
            for tenant, subjects in tenants.items()
        )

    def _line(self, tenant: str, subject: str, waiters: list[T]) -> _Line[T]:
        return _Line(self._last((tenant, subject)), iter(sorted(waiters)))

    def _last(self, key: tuple[str, ...]) -> int:
        return self._served.get(key, 0)


class _Line(Generic[T]):
    """The calls of one tenant or subject. Sorts by when it was served last, then by its first call."""

    __slots__ = ("_rest", "first", "last")

    def __init__(self, last: int, waiters: Iterator[T]) -> None:
        self.last, self.first, self._rest = last, next(waiters), waiters

    def __lt__(self, other: _Line[T]) -> bool:
        return self.last < other.last if self.last != other.last else self.first < other.first

    def advance(self, turn: int) -> bool:
        """Go on to the next call, as served in this turn. Return whether there is one."""
        following = next(self._rest, None)
        if following is None:
            return False
        self.first, self.last = following, turn
        return True


def _interleave(lines: Iterable[_Line[T]]) -> Iterator[T]:
    """Take the first call of the line that was served longest ago, again and again."""
    heap = list(lines)
    heapify(heap)
    turn = max((line.last for line in heap), default=0)
    while heap:
        line, turn = heap[0], turn + 1
        yield line.first
        if line.advance(turn):
            heapreplace(heap, line)
        else:
            heappop(heap)
