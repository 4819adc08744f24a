"""Wakes readers when their jobs change. A few statements at a time look at all watched jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from libs.common.errors import MeshError
from services.executor.domain.jobs.event import JobEvent
from services.executor.domain.jobs.ports import JobEvents, JobSignals

# Looks begin at least this far apart: their number depends neither on the signals nor on the readers.
MIN_INTERVAL_SECONDS = 0.05
# Signals of other replicas may be lost, so the jobs are looked at from time to time.
POLL_SECONDS = 2.0
# Readers that keep up find at most so many events at once; one that is behind reads pages of its own.
EVENTS_PER_LOOK = 20
JOBS_PER_STATEMENT = 100


class _Reader(NamedTuple):
    invocation_id: str
    after: int | None
    """The sequence behind which it reads; None if it waits for the end only."""


_Woken: TypeAlias = asyncio.Future[Sequence[JobEvent] | None]


class WatchedJobs:
    """Waits for changes of jobs, for all readers of this process."""

    def __init__(
        self,
        events: JobEvents,
        signals: JobSignals,
        *,
        min_interval: float = MIN_INTERVAL_SECONDS,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self._events, self._signals = events, signals
        self._min_interval, self._poll_seconds = min_interval, poll_seconds
        self._waiting: dict[_Woken, _Reader] = {}
        self._added = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None

    async def next_events(self, invocation_id: str, after: int, seconds: float) -> Sequence[JobEvent] | None:
        """Return the next events behind a sequence; none of them if so many seconds are over.

        Returns None if the job does not exist or the store fails: the reader must look by itself.
        """
        return await self._wait(_Reader(invocation_id, after), seconds)

    async def wait_ended(self, invocation_id: str, seconds: float) -> None:
        """Return when a job ended, does not exist, the store fails, or so many seconds are over."""
        await self._wait(_Reader(invocation_id, None), seconds)

    async def _wait(self, reader: _Reader, seconds: float) -> Sequence[JobEvent] | None:
        woken: _Woken = asyncio.get_running_loop().create_future()
        self._waiting[woken] = reader
        self._added.set()
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_while_waiting(), name="watched-jobs")
        try:
            await asyncio.wait([woken], timeout=seconds)
            return woken.result() if woken.done() else ()
        finally:
            self._waiting.pop(woken, None)

    async def _look_while_waiting(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(self._min_interval)
                self._added.clear()
                signal = self._signals.next_wake()
                await self._look()
                if not self._added.is_set():
                    await self._next_round(signal)
        finally:
            self._looking = None

    async def _look(self) -> None:
        """Wake the readers whose jobs changed; all of them if the store fails, so that each meets the error itself."""
        waiting = dict(self._waiting)
        try:
            found = await self._events.progress(sorted({reader.invocation_id for reader in waiting.values()}))
            behind = _behind(waiting.values(), found)
            while part := dict(islice(behind.items(), JOBS_PER_STATEMENT)):
                self._hand_out(waiting, part, await self._events.events_of(part, EVENTS_PER_LOOK))
                for invocation_id in part:
                    del behind[invocation_id]
        except MeshError:
            found = {}
        for woken, reader in waiting.items():
            last = found.get(reader.invocation_id)
            if not woken.done() and (last is None or (reader.after is None and last[1])):
                woken.set_result(None)

    def _hand_out(
        self,
        waiting: Mapping[_Woken, _Reader],
        part: Mapping[str, int],
        events: Mapping[str, Sequence[JobEvent]],
    ) -> None:
        for woken, reader in waiting.items():
            after = reader.after
            if woken.done() or after is None or reader.invocation_id not in part:
                continue
            if fresh := [event for event in events.get(reader.invocation_id, ()) if event.sequence > after]:
                woken.set_result(fresh)

    async def _next_round(self, signal: asyncio.Future[None]) -> None:
        added = asyncio.ensure_future(self._added.wait())
        either: list[asyncio.Future[Any]] = [signal, added]
        try:
            await asyncio.wait(either, timeout=self._poll_seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            added.cancel()
            with suppress(asyncio.CancelledError):
                await added


def _behind(readers: Any, found: Mapping[str, tuple[int, bool]]) -> dict[str, int]:
    """Return the jobs with events that a reader has not seen, and the sequence behind which they begin."""
    behind: dict[str, int] = {}
    for invocation_id, after in readers:
        if after is not None and found.get(invocation_id, (0, False))[0] > after:
            behind[invocation_id] = min(after, behind.get(invocation_id, after))
    return behind
