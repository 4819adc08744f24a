"""Limits the memory of containers that no memory cgroup limits, by measuring it from outside."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from services.executor.adapters.sandbox.gvisor.memory_file import MemoryFile
from services.executor.adapters.sandbox.launcher.process_usage import anonymous_bytes

FASTEST_BYTES_PER_SECOND = 2 << 30
"""How fast a tool can take memory; a check comes before the rest of its limit can be used up."""
_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.005, 0.25
_START_PAUSE_SECONDS = 0.05
_OVERHEAD_SECONDS = 1.0
"""Time between measurements of gVisor's own memory, which cost more and grow more slowly."""
_MAX_UNMEASURED_CHECKS = 20
"""Consecutive checks that may find no memory file while gVisor runs."""


class WatchedMemory:
    """The memory of one container: its use, its peak, and the verdict once it is over its limit."""

    def __init__(self, limit: int, sandbox_pids: Callable[[], list[int]], stop: Callable[[], object]) -> None:
        """`sandbox_pids` returns gVisor's processes, the `runsc-sandbox` process first; none while it does not run.
        `stop` is called once, after `exceeded` or `unmeasurable` became true."""
        self._limit, self._sandbox_pids, self._stop = limit, sandbox_pids, stop
        self._file, self._unmeasured = MemoryFile(), 0
        self._pids: list[int] = []
        self._overhead, self._overhead_due = 0, 0.0
        self.peak_bytes = 0
        """The most application memory that was seen."""
        self.exceeded = self.unmeasurable = False

    def check(self, now: float) -> float:
        """Measure, stop the container if it is over its limit, and return the seconds until the next check."""
        self._pids = self._pids or self._sandbox_pids()
        if not self._pids or self.exceeded or self.unmeasurable:
            return _START_PAUSE_SECONDS
        used = self._file.used_bytes(self._pids[0])
        if used is None:
            # Fails closed: memory that cannot be measured would be unlimited.
            self._unmeasured += 1
            self.unmeasurable = self._unmeasured >= _MAX_UNMEASURED_CHECKS
            remaining = 0
        else:
            self._unmeasured, self.peak_bytes = 0, max(self.peak_bytes, used)
            remaining = self._limit - used - self._measure_overhead(now)
            self.exceeded = remaining < 0
        if self.exceeded or self.unmeasurable:
            self._stop()
        pause = remaining / FASTEST_BYTES_PER_SECOND if used is not None else _START_PAUSE_SECONDS
        return min(_MAX_PAUSE_SECONDS, max(_MIN_PAUSE_SECONDS, pause))

    def close(self) -> None:
        """Release the memory file. May be called again."""
        self._file.close()

    def _measure_overhead(self, now: float) -> int:
        if now >= self._overhead_due:
            self._overhead = sum(map(anonymous_bytes, self._pids))
            self._overhead_due = now + _OVERHEAD_SECONDS
        return self._overhead


class MemoryWatch:
    """Checks all containers of one executor in one task, which exists only while there are any."""

    def __init__(self) -> None:
        self._watched: set[WatchedMemory] = set()
        self._task: asyncio.Task[None] | None = None

    def add(self, memory: WatchedMemory) -> None:
        """Check a container until it is removed."""
        self._watched.add(memory)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="gvisor-memory")

    def remove(self, memory: WatchedMemory) -> None:
        """Stop checking a container. Does nothing the second time."""
        self._watched.discard(memory)
        memory.close()
        if not self._watched and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        while True:
            now = time.monotonic()
            pauses = [memory.check(now) for memory in list(self._watched)]
            await asyncio.sleep(min(pauses, default=_MAX_PAUSE_SECONDS))
