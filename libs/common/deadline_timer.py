"""Deadlines of all calls of a process, with one shared timer.

A timer per call is among the most expensive parts of a short call. Calls that end in time, nearly all, only enter and
leave a set.
"""

from __future__ import annotations

import asyncio
import math
from typing import Any

# Long timers expire up to this much early: the reserve of a hop is larger.
TICK = 0.005
# Shorter deadlines have too small a reserve for that, and get a timer of their own.
EXACT_BELOW = 0.1


class DeadlineTimer:
    """The deadline of one call. When it expires, the task that opened it is cancelled."""

    __slots__ = ("_cancelling", "_task", "end", "expired", "holds_slot", "timer")

    def __init__(self, task: asyncio.Task[Any], end: float) -> None:
        self._task, self._cancelling = task, task.cancelling()
        self.end = end
        self.timer: asyncio.TimerHandle | None = None
        self.expired = False
        self.holds_slot = False
        """Whether the call counts against the concurrency limit."""

    def expire(self) -> None:
        """Cancel the task and record the reason."""
        self.expired = True
        self._task.cancel()

    def outcome(self, error: BaseException | None) -> BaseException | None:
        """Return the exception of the call: TimeoutError for a cancellation by this timer, otherwise the given one."""
        if not self.expired:
            return error
        cancelled_by_caller = self._task.uncancel() > self._cancelling
        return TimeoutError() if isinstance(error, asyncio.CancelledError) and not cancelled_by_caller else error


class DeadlineTimers:
    """The running deadlines of a process."""

    def __init__(self) -> None:
        self._open: set[DeadlineTimer] = set()
        self._earliest = math.inf
        """At or before the earliest deadline; earlier where that one was closed."""
        self._timer: asyncio.TimerHandle | None = None

    def open(self, seconds: float, now: float) -> DeadlineTimer:
        """Start a deadline for the current task. `now` is time.monotonic() or the loop's clock."""
        task = asyncio.current_task()
        assert task is not None
        timer = DeadlineTimer(task, now + seconds)
        if seconds < EXACT_BELOW:
            timer.timer = task.get_loop().call_later(seconds, timer.expire)
            return timer
        self._open.add(timer)
        if timer.end < self._earliest:
            self._arm(task.get_loop(), timer.end)
        return timer

    def close(self, timer: DeadlineTimer) -> None:
        """Stop a deadline."""
        if timer.timer is not None:
            timer.timer.cancel()
        else:
            self._open.discard(timer)

    def _arm(self, loop: asyncio.AbstractEventLoop, end: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # A tick early, for all that expire within it.
        self._earliest, self._timer = end, loop.call_at(end - TICK, self._expire_due, loop)

    def _expire_due(self, loop: asyncio.AbstractEventLoop) -> None:
        self._earliest, self._timer = math.inf, None
        soon = loop.time() + TICK
        ended = {timer for timer in self._open if timer.end <= soon}
        self._open -= ended
        for timer in ended:
            timer.expire()
        if self._open:
            self._arm(loop, min(timer.end for timer in self._open))
