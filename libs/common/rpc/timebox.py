"""The time that a call may take, kept for all calls of a process with one timer.

A timer for each call is among the most expensive things a short call does. Calls that end in time, which is nearly all,
only enter and leave a set here.
"""

from __future__ import annotations

import asyncio
from typing import Any

# Long boxes end up to this much early: the margin that a hop keeps back is larger.
TICK = 0.005
# Boxes shorter than this have a margin too small for that, and get a timer of their own.
EXACT_BELOW = 0.1


class Timebox:
    """The time of one call. When it is over, the task that opened it is cancelled."""

    __slots__ = ("_cancelling", "_task", "expired", "slot", "timer")

    def __init__(self, task: asyncio.Task[Any], slot: int) -> None:
        self._task, self._cancelling = task, task.cancelling()
        self.slot = slot
        self.timer: asyncio.TimerHandle | None = None
        self.expired = False

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


class Timeboxes:
    """The open boxes of a process."""

    def __init__(self) -> None:
        self._slots: dict[int, set[Timebox]] = {}
        self._armed: int | None = None
        self._timer: asyncio.TimerHandle | None = None

    def open(self, seconds: float, now: float) -> Timebox:
        """Begin to count for the current task; `now` is on the loop's clock, or on the finer one that it is made from."""
        task = asyncio.current_task()
        assert task is not None
        loop = task.get_loop()
        slot = int((now + seconds) / TICK)
        box = Timebox(task, slot)
        if seconds < EXACT_BELOW:
            box.timer = loop.call_later(seconds, box.expire)
            return box
        boxes = self._slots.get(slot)
        if boxes is None:
            self._slots[slot] = {box}
            if self._armed is None or slot < self._armed:
                self._arm(loop, slot)
        else:
            boxes.add(box)
        return box

    def close(self, box: Timebox) -> None:
        """Stop counting."""
        if box.timer is not None:
            box.timer.cancel()
            return
        boxes = self._slots.get(box.slot)
        if boxes is not None:
            boxes.discard(box)
            if not boxes:
                del self._slots[box.slot]

    def _arm(self, loop: asyncio.AbstractEventLoop, slot: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed, self._timer = slot, loop.call_at(slot * TICK, self._ring, loop)

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        self._armed = self._timer = None
        # Half a tick further: a loop whose clock is coarser than this one's may ring a little early.
        now = int(loop.time() / TICK + 0.5)
        for slot in [slot for slot in self._slots if slot <= now]:
            for box in self._slots.pop(slot):
                box.expire()
        if self._slots:
            self._arm(loop, min(self._slots))
