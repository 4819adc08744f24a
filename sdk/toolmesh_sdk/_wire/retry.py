"""Decides whether a failed call is retried, and how long to wait before the next attempt."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from toolmesh.common.v1.error_table import Reason

from toolmesh_sdk.errors import ToolmeshError

# gRPC treats a timeout beyond the range of its clock as expired.
_MAX_TIMEOUT = 10 * 365 * 86_400.0
# A tool that exceeded its own time limit would exceed it again.
_NEVER_RETRIED = frozenset({Reason.TOOL_TIMEOUT})


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The number of attempts and the backoff between them. `attempts=1` disables retries."""

    attempts: int = 4
    initial: float = 0.1
    multiplier: float = 2.0
    longest: float = 5.0
    jitter: float = 0.25

    def backoff(self, attempt: int) -> float:
        """Return the wait after an attempt, counted from 1: exponential, capped, with jitter."""
        middle = min(self.initial * self.multiplier ** (attempt - 1), self.longest)
        spread = random.uniform(-self.jitter, self.jitter)  # noqa: S311  (jitter, not a secret)
        return max(0.0, middle * (1 + spread))


class Attempts:
    """The attempts of one call, all within the caller's timeout."""

    def __init__(
        self,
        policy: RetryPolicy,
        timeout: float,
        *,
        repeatable: bool,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy, self._repeatable, self._monotonic = policy, repeatable, monotonic
        self._deadline = monotonic() + min(timeout, _MAX_TIMEOUT)
        self.count = 0

    def start(self) -> float:
        """Count an attempt and return its timeout in seconds."""
        self.count += 1
        return self.remaining()

    def remaining(self) -> float:
        """Return the rest of the caller's timeout in seconds, at least zero."""
        return max(0.0, self._deadline - self._monotonic())

    def wait_after(self, error: ToolmeshError) -> float | None:
        """Return the wait before the next attempt; None if the call must not be retried.

        An error of the mesh is retried only if it is retryable, and not before its retry_after. After a transport
        failure the tool may have run, so only a repeatable call is retried. TOOL_TIMEOUT is never retried.
        """
        error.attempts = self.count
        if not error.retryable or error.reason in _NEVER_RETRIED or self.count >= self._policy.attempts:
            return None
        if not (error.answered or self._repeatable):
            return None
        wait = max(self._policy.backoff(self.count), error.retry_after or 0.0)
        return wait if wait < self.remaining() else None
