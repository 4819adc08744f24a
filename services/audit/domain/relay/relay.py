"""Relays the log to a sink, in log order, at least once.

The log is authoritative and the sink a copy. Appends never wait for the relay: if the sink fails, the relay catches up
later.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime

from libs.common.runtime.backoff import Backoff
from libs.common.runtime.clock import Clock
from services.audit.domain.log.tail import Tail
from services.audit.domain.log.yield_every import yield_every
from services.audit.domain.model import Page, RecordFilter, Span
from services.audit.domain.ports import LogReader
from services.audit.domain.relay.cloudevent import cloud_events, erased_sequence
from services.audit.domain.relay.follower_throttle import rest_seconds
from services.audit.domain.relay.ports import RelayLease, RelayObserver, RelaySink, RelayStatus

PAGE_SIZE = 1000
_ALL_RECORDS = RecordFilter()


@dataclass(frozen=True, slots=True)
class RelayTiming:
    """Intervals of the relay in seconds."""

    poll: float = 0.5
    """Polling interval for records of other replicas."""
    pace: float = 0.5
    """Minimum interval on a busy log, so that records are sent in batches. While the log grows, the relay is throttled
    as well (throttle.py). On a quiet log it catches up without a rest."""
    stand_by: float = 2.0
    """Interval between attempts to acquire the lease."""
    first_pause: float = 0.25
    """First pause after a failure; doubled after each further one."""
    longest_pause: float = 15.0
    stop_timeout: float = 3.0
    """Time for running work at shutdown."""
    renew_after: float = 10.0
    """Longest rest without renewing the lease, which expires after 30 s, as for a frozen process."""


class Relay:
    """Relays while this replica holds the lease, and stands by otherwise.

    A record counts as relayed when the sink acknowledged it and the position after it is stored. The next holder of the
    lease begins at that position, so records may be sent twice, but none is skipped or sent before an earlier one.
    """

    def __init__(
        self,
        log: LogReader,
        tail: Tail,
        lease: RelayLease,
        sink: RelaySink,
        observer: RelayObserver,
        clock: Clock,
        *,
        trust_domain: str,
        timing: RelayTiming | None = None,
    ) -> None:
        self._log, self._tail, self._lease, self._sink = log, tail, lease, sink
        self._observer, self._clock, self._trust_domain = observer, clock, trust_domain
        self._timing = timing or RelayTiming()
        self._backoff = Backoff(self._timing.first_pause, self._timing.longest_pause, jitter=0.0)
        self._size = self._size_before = 0
        self._lag_seconds = 0.0
        """Age of the next record when it was last read."""
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start in the background, whether or not the sink is available."""
        self._task = asyncio.create_task(self._run(), name="relay")

    async def stop(self) -> None:
        """Finish the records in flight if the sink is fast enough, and release the lease."""
        self._stopping.set()
        if self._task is not None:
            _, unfinished = await asyncio.wait({self._task}, timeout=self._timing.stop_timeout)
            for task in unfinished:
                task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                await self._relay_or_stand_by()
            except Exception as error:
                # Any failure is retried; it must not affect the log.
                pause = self._backoff.next_pause()
                self._observer.report_failure(error, pause)
                await self._rest(pause)

    async def _relay_or_stand_by(self) -> None:
        """Relay until a failure or shutdown; without the lease, only report the lag."""
        position = await self._lease.acquire()
        if position is None:
            await self._stand_by()
            return
        try:
            position = await self._sink.open((await self._log.head()).log_id, position)
            while not self._stopping.is_set():
                position = await self._advance(position)
        finally:
            # Another replica may be able to reach the sink.
            await self._sink.close()
            await self._lease.release()

    async def _advance(self, position: int) -> int:
        """Relay the next records and return the position after them; wait if there are none."""
        started = self._clock.monotonic()
        page = await self._read_page(position, PAGE_SIZE, leads=True)
        if not page.records:
            await self._lease.renew()
            self._backoff.reset()
            await self._tail.wait_beyond(position, self._timing.poll)
            return position
        if missing := page.records[0].sequence - position:
            self._observer.report_missed(missing)
        await self._sink.publish(
            [event async for record in yield_every(page.records) for event in cloud_events(record, self._trust_domain)]
        )
        erased = [sequence for record in page.records if (sequence := erased_sequence(record)) is not None]
        if erased:
            # Before the position is stored, so that no crash skips it.
            await self._sink.erase(erased)
        next_position = page.records[-1].sequence + 1
        await self._lease.advance(next_position)
        self._observer.report_relayed(len(page.records))
        self._backoff.reset()
        await self._rest_with_lease(self._rest_after(self._clock.monotonic() - started, page))
        return next_position

    def _rest_after(self, worked: float, page: Page) -> float:
        grew, self._size_before = self._size > self._size_before, self._size
        if not page.more:
            return max(self._timing.pace, rest_seconds(worked, self._lag_seconds))
        return rest_seconds(worked, self._lag_seconds) if grew else 0.0

    async def _stand_by(self) -> None:
        await self._read_page(await self._lease.position(), 1, leads=False)
        await self._rest(self._timing.stand_by)

    async def _read_page(self, position: int, limit: int, *, leads: bool) -> Page:
        """Read from a position on, and report the lag."""
        size = self._size = (await self._log.head()).size
        page = Page([], more=False)
        if position < size:
            page = await self._log.page(_ALL_RECORDS, Span(position, size, ascending=True), limit)
        self._lag_seconds = self._age(page.records[0].log_time) if page.records else 0.0
        self._observer.report_status(RelayStatus(leads, max(0, size - position), self._lag_seconds))
        return page

    def _age(self, moment: datetime) -> float:
        return max(0.0, (self._clock.now() - moment).total_seconds())

    async def _rest_with_lease(self, seconds: float) -> None:
        """Rest and renew the lease meanwhile: a slow sink makes for long rests."""
        while seconds > self._timing.renew_after and not self._stopping.is_set():
            await self._rest(self._timing.renew_after)
            await self._lease.renew()
            seconds -= self._timing.renew_after
        await self._rest(seconds)

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return
