"""Time as a port, so that a test can hold it still."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol


class Clock(Protocol):
    """Tells the time of day and the time that never jumps."""

    def now(self) -> datetime:
        """Return the present moment, in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that only ever grow; for durations and deadlines."""
        ...


class SystemClock:
    """The clock of the machine. Its methods are those of the machine themselves: they are called a dozen times for every call."""

    now = staticmethod(partial(datetime.now, UTC))
    monotonic = staticmethod(time.monotonic)


class ManualClock:
    """A clock that moves only when told to; for tests."""

    def __init__(self, start: datetime | None = None) -> None:
        self._now = start or datetime(2026, 1, 1, tzinfo=UTC)
        self._monotonic = 0.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds
