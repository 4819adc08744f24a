"""Decides whether a failed call is retried, and how long to wait before the next attempt."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from toolmesh.common.v1.error_table import Reason

from toolmesh_sdk.errors import ToolmeshError

# gRPC treats a timeout beyond the range of its clock as expired.
_MAX_TIMEOUT = 10 * 365 * 86_400.0
# A tool that exceeded its own time limit would exceed it again.
_NEVER_RETRIED = frozenset({Reason.TOOL_TIMEOUT})
# The mesh refused the call before the tool could run, so even a call without a key may be repeated.
_NOTHING_RAN = frozenset(
    {
        Reason.SERVICE_UNAVAILABLE,
        Reason.RATE_LIMITED,
        Reason.OVERLOADED,
        Reason.POLICY_ENGINE_ERROR,
        Reason.SANDBOX_UNAVAILABLE,
        Reason.SANDBOX_NOT_READY,
        Reason.CIRCUIT_OPEN,
        Reason.SECRET_STORE_UNAVAILABLE,
        Reason.QUEUE_FULL,
        Reason.AUDIT_UNAVAILABLE,
        Reason.AUDIT_BACKPRESSURE,
    }
)
# A tool or a mesh that fails this often in a row fails for another reason than the moment.
_MAX_FAULTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The backoff between attempts. Attempts end with the deadline, or with the retry budget of the client.

    `attempts` limits them further; `attempts=1` disables retries. `lost_attempts` limits those of a call that gets no
    response, for example because the mesh is down.
    """

    attempts: int | None = None
    lost_attempts: int | None = None
    initial: float = 0.1
    multiplier: float = 2.0
    longest: float = 5.0
    jitter: float = 0.25

    def backoff(self, attempt: int) -> float:
        """Return the wait after an attempt, counted from 1: exponential, capped, with jitter."""
        # Bounded: a float cannot hold any power, and the wait stopped growing long before.
        middle = min(self.initial * self.multiplier ** min(attempt - 1, 64), self.longest)
        spread = random.uniform(-self.jitter, self.jitter)  # noqa: S311  (jitter, not a secret)
        return max(0.0, middle * (1 + spread))

    def delay(self, retry_after: float) -> float:
        """Return the wait after an error that names a delay: a little longer, so that callers do not return at once."""
        return retry_after * (1 + random.uniform(0.0, self.jitter))  # noqa: S311

    def allows(self, attempts: int, error: ToolmeshError) -> bool:
        """Return whether the number of attempts so far allows another one."""
        limits = [self.attempts, None if error.answered else self.lost_attempts]
        if error.answered and error.category == "INTERNAL_TOOL_ERROR":
            limits.append(_MAX_FAULTS)
        return all(limit is None or attempts < limit for limit in limits)


# A person waits for a command: a mesh that is down is reported within a second or two.
COMMAND_LINE = RetryPolicy(lost_attempts=4)


class RetryBudget:
    """Bounds the retries of all calls of a client together, so that an outage is not multiplied. Thread-safe."""

    def __init__(
        self, capacity: float = 100.0, per_second: float = 2.0, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._capacity, self._per_second, self._monotonic = capacity, per_second, monotonic
        self._left, self._since = capacity, monotonic()
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Take one retry from the budget. Return False if none is left."""
        with self._lock:
            now = self._monotonic()
            self._left = min(self._capacity, self._left + (now - self._since) * self._per_second)
            self._since = now
            if self._left < 1.0:
                return False
            self._left -= 1.0
            return True


class Attempts:
    """The attempts of one call, all within the caller's timeout."""

    def __init__(
        self,
        policy: RetryPolicy,
        timeout: float,
        *,
        repeatable: bool,
        budget: RetryBudget | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy, self._repeatable, self._budget, self._monotonic = policy, repeatable, budget, monotonic
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

        An error of the mesh is retried only if it is retryable, and not before its retry_after. A call that is not
        repeatable is retried only after an error that says that the tool did not run. TOOL_TIMEOUT is never retried.
        """
        error.attempts = self.count
        if not error.retryable or error.reason in _NEVER_RETRIED or not self._policy.allows(self.count, error):
            return None
        if not (self._repeatable or _did_not_run(error)):
            return None
        wait = self._policy.backoff(self.count)
        if error.retry_after is not None:
            wait = max(wait, error.retry_after, min(self._policy.delay(error.retry_after), self.remaining() * 0.9))
        if wait >= self.remaining() or (self._budget is not None and not self._budget.take()):
            return None
        return wait


def _did_not_run(error: ToolmeshError) -> bool:
    return error.answered and error.reason in _NOTHING_RAN and error.metadata.get("tool_ran") != "true"
