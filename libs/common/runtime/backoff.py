"""Exponential backoff with jitter, for loops that reconnect and for retries."""

from __future__ import annotations

import asyncio
import random


class Backoff:
    """Computes growing pauses between attempts. `reset()` after a success starts again at the shortest pause."""

    def __init__(self, first: float, longest: float, *, growth: float = 2.0, jitter: float = 0.5) -> None:
        """Each pause is drawn from the upper `jitter` share of the step, so that replicas do not retry in step."""
        self._first, self._longest, self._growth, self._jitter = first, longest, growth, jitter
        self._step = first

    def reset(self) -> None:
        """Start again at the shortest pause."""
        self._step = self._first

    def next_pause(self) -> float:
        """Return the seconds to wait before the next attempt, and grow the step."""
        step, self._step = self._step, min(self._step * self._growth, self._longest)
        return step * random.uniform(1.0 - self._jitter, 1.0)  # noqa: S311  (spreads load, protects nothing)

    async def wait(self) -> None:
        """Sleep until the next attempt is due."""
        await asyncio.sleep(self.next_pause())
