"""Decides whether and when a failed request is sent again. Pure but for chance."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

_FIRST_DELAY = 0.1
# A budget of retries: each call adds a fifth of one, so that a failing service gets at most 20 % more requests.
_EARNED, _MOST = 0.2, 10.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The manifest's word on retries. Without a policy nothing is retried."""

    max_attempts: int = 3
    multiplier: float = 2.0
    longest_delay: float = 60.0
    statuses: frozenset[int] = frozenset({429, 500, 502, 503, 504})

    def delay(self, attempt: int, chance: Callable[[], float] = random.random) -> float:
        """Return the seconds before the attempt after this one: exponential, with full jitter."""
        return chance() * min(self.longest_delay, _FIRST_DELAY * self.multiplier ** (attempt - 1))


class RetryBudget:
    """The retries that all calls of one service share in this process."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = _MOST

    def earn(self) -> None:
        """Count a call."""
        self._left = min(_MOST, self._left + _EARNED)

    def take(self) -> bool:
        """Take one retry; return False if none is left."""
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


@dataclass(slots=True)
class RetrySchedule:
    """The retries of one call."""

    policy: RetryPolicy | None
    budget: RetryBudget
    until: float
    """The end of the call's time, by the clock that `next_delay` gets."""
    attempts: int = 1

    def next_delay(self, now: float, *, safe: bool, asked: float | None) -> float | None:
        """Return the seconds to wait before the next attempt; None if there is none.

        `asked` is the delay that the service asks for, which is never shortened. A delay beyond the call's time, an
        unsafe repetition, and an empty budget end the attempts.
        """
        if self.policy is None or not safe or self.attempts >= self.policy.max_attempts:
            return None
        delay = self.policy.delay(self.attempts)
        if asked is not None:
            delay += asked
        if now + delay >= self.until or not self.budget.take():
            return None
        self.attempts += 1
        return delay
