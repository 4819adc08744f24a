"""The time that a call may take, kept for all calls of a process with one timer.

A timer for each call is among the most expensive things a short call does. Calls that end in time, which is nearly all,
only enter and leave a set here.
"""

from __future__ import annotations

import asyncio
import math
from typing import Any

# Long boxes end up to this much early: the margin that a hop keeps back is larger.
TICK = 0.005
# Boxes shorter than this have a margin too small for that, and get a timer of their own.
EXACT_BELOW = 0.1


class DeadlineTimer:
    """The time of one call. When it is over, the task that opened it is cancelled."""

    __slots__ = ("_cancelling", "_task", "end", "expired", "place", "timer")

    def __init__(self, task: asyncio.Task[Any], end: float) -> None:
        self._task, self._cancelling = task, task.cancelling()
        self.end = end
        self.timer: asyncio.TimerHandle | None = None
        self.expired = False
        self.place = False
        """Whether its call holds one of the places that there are for calls."""

    def expire(self) -> None:
        """Cancel the task, and remember that it was for this reason."""
        self.expired = True
        self._task.cancel()

    def outcome(self, error: BaseException | None) -> BaseException | None:
        """Return what the call ends with: a cancellation that this box caused is a TimeoutError, any other stays one."""
        if not self.expired:
            return error
        withdrawn = self._task.uncancel() > self._cancelling
        return TimeoutError() if isinstance(error, asyncio.CancelledError) and not withdrawn else error


class DeadlineTimers:
    """The open boxes of a process."""

    def __init__(self) -> None:
        self._open: set[DeadlineTimer] = set()
        self._earliest = math.inf
        """No later than the first of them to end; earlier where that one was closed."""
        self._timer: asyncio.TimerHandle | None = None

    def open(self, seconds: float, now: float) -> DeadlineTimer:
        """Begin to count for the current task; `now` is on the loop's clock, or on the finer one that it is made from."""
        task = asyncio.current_task()
        assert task is not None
        box = DeadlineTimer(task, now + seconds)
        if seconds < EXACT_BELOW:
            box.timer = task.get_loop().call_later(seconds, box.expire)
            return box
        self._open.add(box)
        if box.end < self._earliest:
            self._arm(task.get_loop(), box.end)
        return box

    def close(self, box: DeadlineTimer) -> None:
        """Stop counting."""
        if box.timer is not None:
            box.timer.cancel()
        else:
            self._open.discard(box)

    def _arm(self, loop: asyncio.AbstractEventLoop, end: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # A tick early, for all that end within it.
        self._earliest, self._timer = end, loop.call_at(end - TICK, self._ring, loop)

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        self._earliest, self._timer = math.inf, None
        soon = loop.time() + TICK
        ended = {box for box in self._open if box.end <= soon}
        self._open -= ended
        for box in ended:
            box.expire()
        if self._open:
            self._arm(loop, min(box.end for box in self._open))
