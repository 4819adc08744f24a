"""Time as a port, so that tests can control it."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import partial
from typing import Protocol


class Clock(Protocol):
    """Returns the wall-clock time and the monotonic time."""

    def now(self) -> datetime:
        """Return the current time, in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that only ever grow; for durations and deadlines."""
        ...


class SystemClock:
    """The system clock. Its methods are the system's own functions, because each call reads the time a dozen times."""

    now = staticmethod(partial(datetime.now, UTC))
    monotonic = staticmethod(time.monotonic)
