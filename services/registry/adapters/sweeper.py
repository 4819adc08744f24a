"""Runs periodic tasks in one replica at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from prometheus_client import Counter
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.errors import MeshError
from libs.common.telemetry.log import Log
from services.registry.domain.lifecycle.sweep_lifecycle import SweepReport

SWEEP_SECONDS = 5.0
# Any number that no other advisory lock in the database uses.
_LOCK_KEY = 0x7006_3E5B

sweeps_total = Counter(
    "toolmesh_registry_sweeps_total", "Sweeps of this replica, by task and outcome.", ["task", "outcome"]
)

versions_swept_total = Counter(
    "toolmesh_registry_versions_swept_total", "Versions that were due in a sweep, by outcome.", ["outcome"]
)

Task = Callable[[], Awaitable[object]]


class Sweeper:
    """Runs each task every `interval` seconds while this replica holds the lock. A failed task is retried in the next
    sweep and does not affect the others."""

    def __init__(
        self, engine: AsyncEngine, log: Log, tasks: dict[str, Task], *, interval: float = SWEEP_SECONDS
    ) -> None:
        self._engine, self._log, self._tasks, self._interval = engine, log, tasks, interval
        self._failing: set[str] = set()
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start in the background."""
        self._running = asyncio.create_task(self._run(), name="sweeper")

    async def stop(self) -> None:
        """Stop; unfinished work is left to the next sweep."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait({self._running})

    async def sweep(self) -> bool:
        """Run every task once if this replica gets the lock, and return whether it did."""
        async with self._lock() as acquired:
            if acquired:
                for name, task in self._tasks.items():
                    await self._run_task(name, task)
            return acquired

    async def _run(self) -> None:
        while True:
            try:
                await self.sweep()
            except Exception as error:
                # The next sweep may succeed; the loop must not end.
                self._record_failure("turn", error)
            await asyncio.sleep(self._interval)

    async def _run_task(self, name: str, task: Task) -> None:
        try:
            await task()
        except Exception as error:
            self._record_failure(name, error)
        else:
            sweeps_total.labels(name, "done").inc()
            self._failing.discard(name)

    def _record_failure(self, name: str, error: Exception) -> None:
        sweeps_total.labels(name, "failed").inc()
        if name in self._failing:
            return
        self._failing.add(name)
        if isinstance(error, MeshError):
            self._log.warning("sweep postponed", task=name, reason=error.reason.name)
        else:
            self._log.error("sweep failed", task=name, cause=error)

    @asynccontextmanager
    async def _lock(self) -> AsyncIterator[bool]:
        """Try to take a session lock. A transaction would be too long, because a sweep calls other services."""
        async with self._engine.connect() as connection:
            acquired = bool(await connection.scalar(text("select pg_try_advisory_lock(:turn)"), {"turn": _LOCK_KEY}))
            try:
                yield acquired
            finally:
                if acquired:
                    await connection.execute(text("select pg_advisory_unlock(:turn)"), {"turn": _LOCK_KEY})


def log_report(sweep: SweepReport, log: Log) -> None:
    """Log and count the swept versions; one that is still called is a warning."""
    for outcome, names in (("ended", sweep.ended), ("removed", sweep.removed)):
        for name in names:
            versions_swept_total.labels(outcome).inc()
            log.info(f"version {outcome}", version=name)
    for name, calls in sweep.still_called:
        versions_swept_total.labels("kept").inc()
        log.warning("version is still called, so it is not removed", version=name, calls=calls)
