"""Bounds the calls under way of one subject and of one tenant. A group counts as its calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from services.executor.domain import errors
from services.executor.domain.model import Caller

Asked = TypeVar("Asked")
Outcome = TypeVar("Outcome")


@dataclass(frozen=True, slots=True)
class CallerBounds:
    """The most calls under way in one executor, waiting ones included."""

    subject: int = 128
    tenant: int = 512


class Holder(Protocol):
    """Whose calls are counted."""

    @property
    def tenant(self) -> str: ...

    @property
    def subject(self) -> str: ...


class CallerLimits:
    """Counts calls under way by subject and by tenant."""

    def __init__(self, bounds: CallerBounds) -> None:
        self._bounds = bounds
        self._counts: Counter[tuple[str, ...]] = Counter()

    @contextmanager
    def hold(self, caller: Holder, calls: int) -> Iterator[None]:
        """Count calls of a caller while they are under way. Raises RATE_LIMITED, and counts none, beyond a bound."""
        tenant, subject = (caller.tenant,), (caller.tenant, caller.subject)
        for name, key, most in (("subject", subject, self._bounds.subject), ("tenant", tenant, self._bounds.tenant)):
            if self._counts[key] + calls > most:
                raise errors.too_many_calls(name, most)
        self._add(calls, tenant, subject)
        try:
            yield
        finally:
            self._add(-calls, tenant, subject)

    def _add(self, calls: int, *keys: tuple[str, ...]) -> None:
        for key in keys:
            self._counts[key] += calls
            if not self._counts[key]:
                del self._counts[key]


class LimitedCalls(Generic[Asked, Outcome]):
    """A use case within the limits of its callers. A call beyond them is refused before it begins, without a record."""

    def __init__(
        self,
        limits: CallerLimits,
        execute: Callable[[Asked], Awaitable[Outcome]],
        count: Callable[[Asked], tuple[Caller, int]],
    ) -> None:
        """`count` returns whose calls are asked for, and how many."""
        self._limits, self._execute, self._count = limits, execute, count

    async def execute(self, asked: Asked) -> Outcome:
        """Return the outcome. Raises RATE_LIMITED when the caller has too many calls under way."""
        with self._limits.hold(*self._count(asked)):
            return await self._execute(asked)
