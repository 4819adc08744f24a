"""Remembers the circuits that changed lately, for the registry, which tells policies which tools work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from libs.common.runtime.bounded_cache import BoundedCache
from libs.common.runtime.clock import Clock
from services.executor.domain.resilience.circuit import CircuitState

# The most circuits of an announcement.
MAX_CIRCUITS = 256
# A service that was not called for so long is not known to fail.
_REMEMBERED = timedelta(minutes=15)


class CircuitChange(NamedTuple):
    """The state of a circuit, and since when."""

    name: str
    state: CircuitState
    since: datetime


class RecentChanges:
    """Holds the last change of each circuit that this executor saw."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changes: BoundedCache[str, tuple[CircuitChange, timedelta]] = BoundedCache(MAX_CIRCUITS)
        self._listeners: list[Callable[[], None]] = []

    def listen(self, listener: Callable[[], None]) -> None:
        """Call the listener after every change."""
        self._listeners.append(listener)

    def note(self, name: str, state: CircuitState, open_seconds: float) -> None:
        """Note a change. An open circuit lets a call try the service again after so many seconds."""
        change = CircuitChange(name, state, self._clock.now())
        self._changes.put(name, (change, timedelta(seconds=open_seconds)))
        for listener in self._listeners:
            listener()

    def current(self) -> Sequence[CircuitChange]:
        """Return the circuits in their states of this moment. One whose service may be tried again is half open:
        policies that refuse calls of tools that cannot work must not keep it open."""
        now = self._clock.now()
        changes = [
            change._replace(state=CircuitState.HALF_OPEN, since=change.since + open_for)
            if change.state is CircuitState.OPEN and now >= change.since + open_for
            else change
            for change, open_for in self._changes.values()
        ]
        return [change for change in changes if now - change.since < _REMEMBERED]
