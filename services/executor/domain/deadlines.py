"""Splits the deadline of a call: time to run, and time to record the outcome and answer."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from libs.common.errors import MeshError, Reason
from libs.common.runtime.clock import Clock
from services.executor.domain import errors, run_errors
from services.executor.domain.model import Request
from services.executor.domain.tool import TimeoutClass, Tool

CLASS_SECONDS = {
    TimeoutClass.INTERACTIVE: 0.5,
    TimeoutClass.STANDARD: 5.0,
    TimeoutClass.LONG_RUNNING: 300.0,
    # Longer than five minutes; this is the longest limit that a manifest can name.
    TimeoutClass.ASYNC: 86_400.0,
}
_FOREVER = float("inf")
# The answers of a log that had no more time.
_LATE = frozenset({Reason.AUDIT_UNAVAILABLE, Reason.AUDIT_BACKPRESSURE})
# A timer may fire this much early.
_TICK = 0.002


class Limit(Struct, frozen=True):
    """The time limit of a run, and the error when it is exceeded."""

    seconds: float
    exceeded: Callable[[], MeshError]


class Deadline:
    """When the run of a call must end, and when the wait for the log must, on the monotonic clock."""

    __slots__ = ("answer_by", "run_until")

    def __init__(self, request: Request, now: float) -> None:
        deadline = request.deadline
        if deadline is None:
            self.run_until = self.answer_by = _FOREVER
            return
        reserve = _reserve(deadline - now)
        self.run_until = deadline - reserve
        self.answer_by = deadline - 0.6 * reserve


def time_left(until: float, clock: Clock, longest: float) -> float:
    """Return how many seconds a step may take that must end by `until`: at most `longest`, and more than nothing."""
    return max(min(until - clock.monotonic(), longest), 0.001)


def blame_deadline(unrecorded: MeshError, until: float, clock: Clock) -> MeshError:
    """Return why a record is not durable: the caller's time is over, or else what the log answered."""
    if unrecorded.reason not in _LATE or clock.monotonic() < until - _TICK:
        return unrecorded
    return MeshError(Reason.DEADLINE_EXCEEDED, metadata={"waited_for": "audit"})


def limit_for(tool: Tool, request: Request, deadline: Deadline, clock: Clock) -> Limit:
    """Return the shortest of the tool's own limit, the caller's deadline, and the lifetime of its token.

    Raises DEADLINE_EXCEEDED or TOKEN_EXPIRED when no time is left.
    """
    left = deadline.run_until - clock.monotonic()
    if left <= 0:
        raise errors.deadline_exceeded()
    authority = request.caller.authority_ends - clock.now().timestamp()
    if authority <= 0:
        raise errors.authority_ended()
    if tool.own_limit <= left and tool.own_limit <= authority:
        return Limit(tool.own_limit, lambda: errors.tool_timed_out(tool.own_limit))
    return Limit(left, errors.deadline_exceeded) if left <= authority else Limit(authority, errors.authority_ended)


def outer_limit(request: Request, deadline: Deadline, clock: Clock) -> Limit:
    """Return the shorter of the caller's deadline and the lifetime of its token, whatever the tool's own limit."""
    left = max(deadline.run_until - clock.monotonic(), 0.0)
    authority = max(request.caller.authority_ends - clock.now().timestamp(), 0.0)
    return Limit(left, errors.deadline_exceeded) if left <= authority else Limit(authority, errors.authority_ended)


def start_limit_for(request: Request, deadline: Deadline, clock: Clock, longest: float) -> Limit:
    """Return how long a call waits for its sandbox: at most `longest`, its deadline and the lifetime of its token."""
    seconds = min(deadline.run_until - clock.monotonic(), longest)
    authority = request.caller.authority_ends - clock.now().timestamp()
    return (
        Limit(authority, errors.authority_ended)
        if authority < seconds
        else Limit(seconds, run_errors.sandbox_not_ready)
    )


def _reserve(left: float) -> float:
    """Return a fifth of the remaining time, between 2 and 200 ms: twice the reserve of the server."""
    return min(max(left * 0.2, 0.002), 0.2)
