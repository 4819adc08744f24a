"""Wakes readers when their jobs change. One statement at a time looks at all watched jobs."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from libs.common.errors import MeshError
from services.executor.domain.jobs.ports import JobSignals, JobStore

# Statements begin at least this far apart: their number depends neither on the signals nor on the readers.
MIN_INTERVAL_SECONDS = 0.05
# Signals of other replicas may be lost, so the jobs are looked at from time to time.
POLL_SECONDS = 2.0


class WatchedJobs:
    """Waits for changes of jobs, for all readers of this process."""

    def __init__(
        self,
        store: JobStore,
        signals: JobSignals,
        *,
        min_interval: float = MIN_INTERVAL_SECONDS,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self._store, self._signals = store, signals
        self._min_interval, self._poll_seconds = min_interval, poll_seconds
        self._waiting: dict[asyncio.Future[None], tuple[str, int]] = {}
        self._added = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None

    async def wait_beyond(self, invocation_id: str, sequence: int, seconds: float | None = None) -> None:
        """Return when a job has an event behind a sequence, does not exist, or so many seconds are over."""
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[changed] = (invocation_id, sequence)
        self._added.set()
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_while_waiting(), name="watched-jobs")
        try:
            await asyncio.wait([changed], timeout=seconds)
        finally:
            self._waiting.pop(changed, None)

    async def _look_while_waiting(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(self._min_interval)
                self._added.clear()
                woken = self._signals.next_wake()
                await self._look()
                if not self._added.is_set():
                    await self._next_round(woken)
        finally:
            self._looking = None

    async def _look(self) -> None:
        """Wake the readers whose jobs changed; all of them if the store fails, so that each meets the error itself."""
        waiting = dict(self._waiting)
        try:
            found = await self._store.sequences(sorted({invocation_id for invocation_id, _ in waiting.values()}))
        except MeshError:
            found = {}
        for changed, (invocation_id, sequence) in waiting.items():
            if not changed.done() and found.get(invocation_id, sequence + 1) > sequence:
                changed.set_result(None)

    async def _next_round(self, woken: asyncio.Future[None]) -> None:
        added = asyncio.ensure_future(self._added.wait())
        either: list[asyncio.Future[Any]] = [woken, added]
        try:
            await asyncio.wait(either, timeout=self._poll_seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            added.cancel()
            with suppress(asyncio.CancelledError):
                await added
