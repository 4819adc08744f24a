"""Fourth stage: checks the deadline and the limit of concurrent calls."""

from __future__ import annotations

import time
from collections.abc import Callable

from libs.common.call_context import Call, margin
from libs.common.deadline_header import parse_deadline
from libs.common.deadline_timer import DeadlineTimers
from libs.common.errors import MeshError, Reason
from libs.common.rpc.policy import PLATFORM, Policy


class Admission:
    """Refuses calls that cannot end in time or exceed the concurrency limit; sets the deadline of the others."""

    def __init__(self, policy: Policy, max_concurrent_calls: int) -> None:
        self._policy = {**PLATFORM, **policy}
        self._limit = max_concurrent_calls
        self._running = 0
        self._timers = DeadlineTimers()

    def admission_of(self, method: str) -> Callable[[Call], None]:
        """Return the function that admits calls of a method, or raises to refuse."""
        row = self._policy.get(method)
        default = None if row is None else row.deadline
        # A stream without a default deadline holds no slot: it would starve short calls.
        holds_slot = default is not None

        def admit(call: Call) -> None:
            now = time.monotonic()
            if call.deadline_header is not None:
                _shorten(call)
            if call.deadline is None:
                if default is None:
                    return
                call.deadline = now + default
            remaining = call.deadline - now
            if remaining <= 0:
                raise MeshError(Reason.DEADLINE_EXCEEDED)
            if holds_slot and self._running >= self._limit:
                raise MeshError(Reason.OVERLOADED, retry_after=0.1)
            # Ends a little early, so that the response still reaches the caller.
            call.deadline_timer = self._timers.open(remaining - margin(remaining), now)
            call.deadline_timer.holds_slot = holds_slot
            self._running += holds_slot

        return admit

    def leave(self, call: Call, error: BaseException | None) -> BaseException | None:
        """Release a call's slot, if it has one; return the exception that it ends with."""
        timer = call.deadline_timer
        if timer is None:
            return error
        self._running -= timer.holds_slot
        self._timers.close(timer)
        return timer.outcome(error) if timer.expired else error


def _shorten(call: Call) -> None:
    """Apply the caller's `x-deadline-ms`: the least of it and `grpc-timeout` holds. Raises INVALID_REQUEST."""
    asked = call.started + parse_deadline(call.deadline_header or "") / 1000
    call.deadline = asked if call.deadline is None else min(call.deadline, asked)
