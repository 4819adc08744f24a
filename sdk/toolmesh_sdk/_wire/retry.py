"""When a call is made again, and how long to wait before that."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from toolmesh.common.v1.error_table import Reason

from toolmesh_sdk.errors import ToolmeshError

# gRPC takes a timeout that leads beyond what its clock can say for one that is over; nobody waits for ten years.
_LONGEST = 10 * 365 * 86_400.0
# A tool that used up its own time would use it up again. Whoever called may try with less work, or later.
_USED_UP = frozenset({Reason.TOOL_TIMEOUT})


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and how patiently a call is repeated. `attempts=1` never repeats."""

    attempts: int = 4
    initial: float = 0.1
    multiplier: float = 2.0
    longest: float = 5.0
    jitter: float = 0.25

    def backoff(self, attempt: int) -> float:
        """Return the wait after the given attempt, counted from 1: exponential, capped, and spread around that value."""
        middle = min(self.initial * self.multiplier ** (attempt - 1), self.longest)
        spread = random.uniform(-self.jitter, self.jitter)  # noqa: S311  (spreads load, keeps no secret)
        return max(0.0, middle * (1 + spread))


class Attempts:
    """The attempts of one call, all inside the caller's one timeout."""

    def __init__(
        self,
        policy: RetryPolicy,
        timeout: float,
        *,
        repeatable: bool,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy, self._repeatable, self._monotonic = policy, repeatable, monotonic
        self._deadline = monotonic() + min(timeout, _LONGEST)
        self.made = 0

    def begin(self) -> float:
        """Count an attempt and return the seconds that it has."""
        self.made += 1
        return self.remaining()

    def remaining(self) -> float:
        """Return the seconds that are left of the caller's timeout, never less than zero."""
        return max(0.0, self._deadline - self._monotonic())

    def wait_after(self, error: ToolmeshError) -> float | None:
        """Return how long to wait before the next attempt; None when there must not be one.

        An answer of the mesh is obeyed: no retry unless it says retryable, and none before its retry_after. Where the
        transport failed without an answer, the tool may have run; then only a call that is safe to repeat is repeated.
        A tool that its own limit ended is not tried again.
        """
        error.attempts = self.made
        if not error.retryable or error.reason in _USED_UP or self.made >= self._policy.attempts:
            return None
        if not (error.answered or self._repeatable):
            return None
        wait = max(self._policy.backoff(self.made), error.retry_after or 0.0)
        return wait if wait < self.remaining() else None
