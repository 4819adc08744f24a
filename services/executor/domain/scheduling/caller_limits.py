"""Bounds the calls under way of one subject and of one tenant. A group counts as its calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from libs.common.errors import MeshError
from services.executor.domain import errors
from services.executor.domain.model import Request
from services.executor.domain.scheduling.refused_calls import RefusedCalls

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
        refusal = self.find_refusal(caller, calls)
        if refusal is not None:
            raise refusal
        tenant, subject = (caller.tenant,), (caller.tenant, caller.subject)
        self._add(calls, tenant, subject)
        try:
            yield
        finally:
            self._add(-calls, tenant, subject)

    def find_refusal(self, caller: Holder, calls: int) -> MeshError | None:
        """Return RATE_LIMITED if so many more calls of a caller are beyond a bound, else None."""
        tenant, subject = (caller.tenant,), (caller.tenant, caller.subject)
        for name, key, most in (("subject", subject, self._bounds.subject), ("tenant", tenant, self._bounds.tenant)):
            if self._counts[key] + calls > most:
                return errors.too_many_calls(name, most)
        return None

    def _add(self, calls: int, *keys: tuple[str, ...]) -> None:
        for key in keys:
            self._counts[key] += calls
            if not self._counts[key]:
                del self._counts[key]


class LimitedCalls(Generic[Asked, Outcome]):
    """A use case within the limits of its callers. A call beyond them is refused before it begins, on record."""

    def __init__(
        self,
        limits: CallerLimits,
        execute: Callable[[Asked], Awaitable[Outcome]],
        requests: Callable[[Asked], Sequence[Request]],
        refused: RefusedCalls,
    ) -> None:
        """`requests` returns the calls that are asked for, all of one caller."""
        self._limits, self._execute, self._requests, self._refused = limits, execute, requests, refused

    async def execute(self, asked: Asked) -> Outcome:
        """Return the outcome. Raises RATE_LIMITED when the caller has too many calls under way."""
        requests = self._requests(asked)
        caller, calls = requests[0].caller, len(requests)
        refusal = self._limits.find_refusal(caller, calls)
        if refusal is not None:
            raise await self._refused.refuse(requests[0], refusal, calls)
        with self._limits.hold(caller, calls):
            return await self._execute(asked)
