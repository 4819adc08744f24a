"""Runs full garbage collections at quiet moments.

A full collection visits every object that is alive, and holds the interpreter's lock meanwhile: amid a large call it
took 120 ms of the event loop. The collections of young objects go on as usual. From Python 3.14 on the interpreter
spreads full collections itself and ignores the threshold that is set here.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import time
from collections.abc import Callable

LOOK_SECONDS = 1.0
# The interpreter's own threshold: so many collections of the middle generation since the last full one.
_DUE_COLLECTIONS = 10
# Calls of ordinary size allocate less than this while they run.
QUIET_BLOCKS = 100_000
# A collection of an idle service takes about 15 ms.
SHORTEST_DELAY_SECONDS = 60.0
LONGEST_DELAY_SECONDS = 300.0
_NEVER = 2**31 - 1


class FullCollections:
    """Decides when to collect. One for each process."""

    def __init__(
        self, allocated: Callable[[], int] = sys.getallocatedblocks, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._allocated, self._now = allocated, now
        self._least = allocated()
        self._last = now()

    async def step(self) -> None:
        """Look once; a PeriodicTask does so again and again."""
        self.collect_if_due()

    def collect_if_due(self) -> bool:
        """Collect if that is due and no large data is alive, or was due for long. Return whether it collected."""
        allocated = self._allocated()
        self._least = min(self._least, allocated)
        delay = self._now() - self._last
        if delay < SHORTEST_DELAY_SECONDS or gc.get_count()[2] < _DUE_COLLECTIONS:
            return False
        if allocated - self._least > QUIET_BLOCKS and delay < LONGEST_DELAY_SECONDS:
            return False
        gc.collect()
        self._least, self._last = self._allocated(), self._now()
        return True


def freeze_startup_objects() -> None:
    """Exclude what exists from garbage collection, collect fully only by `FullCollections` from now on, and return free
    memory to the system."""
    gc.collect()
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _NEVER)
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
