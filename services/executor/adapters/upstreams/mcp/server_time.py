"""Measures how long a server has had for a call, without the time in which it waited for its caller."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class ServerTime:
    """The time of one call. It runs from `begin` on, except while the server waits for an answer of the caller."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._running_since: float | None = None
        self._spent = 0.0
        self._questions = 0

    def begin(self) -> None:
        """Start to measure: the server gets the call."""
        self._running_since = self._clock()

    @property
    def seconds(self) -> float:
        """How long it was so far."""
        return self._spent + (0.0 if self._running_since is None else self._clock() - self._running_since)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Do not measure while the server waits. Waits may overlap."""
        self._questions += 1
        if self._questions == 1:
            self._spent, self._running_since = self.seconds, None
        try:
            yield
        finally:
            self._questions -= 1
            if not self._questions:
                self._running_since = self._clock()
