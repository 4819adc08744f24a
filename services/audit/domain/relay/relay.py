"""The relay: follows the log and tells a sink of every record, in log order, at least once.

The log is the truth and the sink a copy of it. Nothing here is on the way of an append: whatever the sink does, the log
goes on, and the relay catches up later.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime

from libs.common.runtime.clock import Clock
from services.audit.domain.log.tail import Tail
from services.audit.domain.log.yield_every import in_slices
from services.audit.domain.model import Page, RecordFilter, Span, Standing
from services.audit.domain.ports import LogReader, RelaySeat, RelaySink, RelayWatch
from services.audit.domain.relay.cloudevent import cloud_event
from services.audit.domain.relay.throttle import rest_seconds

PAGE_SIZE = 1000
_EVERYTHING = RecordFilter()


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How long the relay waits for what, in seconds."""

    poll: float = 0.5
    """Between two looks for records of other replicas."""
    pace: float = 0.5
    """Between two looks on a busy log, so that records travel in company. A look costs what several calls do, and whoever
    appends pays for it: while the log grows the relay also rests many times as long as it works (pace.py). It catches up when the
    log is quiet, without a rest; how far behind it is can be seen."""
    stand_by: float = 2.0
    """Between two attempts to take the seat."""
    first_pause: float = 0.25
    """After a failure; twice as long after each further one."""
    longest_pause: float = 15.0
    grace: float = 3.0
    """For what is under way when the process ends."""
    silence: float = 10.0
    """At most without a word about the seat: who says nothing for half a minute loses it, as a frozen process does."""


class Relay:
    """One replica's part in relaying: it relays while it has the seat and stands by while another has it.

    A record counts as relayed only when the sink has acknowledged it and the position behind it is stored. Whoever takes
    over begins at that position, so a record may be told of twice, and none is left out or told of before an earlier one.
    """

    def __init__(
        self,
        log: LogReader,
        tail: Tail,
        seat: RelaySeat,
        sink: RelaySink,
        watch: RelayWatch,
        clock: Clock,
        *,
        trust_domain: str,
        rhythm: Rhythm | None = None,
    ) -> None:
        self._log, self._tail, self._seat, self._sink = log, tail, seat, sink
        self._watch, self._clock, self._trust_domain = watch, clock, trust_domain
        self._rhythm = rhythm or Rhythm()
        self._pause = self._rhythm.first_pause
        self._size = self._size_before = 0
        self._behind = 0.0
        """How many seconds the next record has waited when it was last looked at."""
        self._ending = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to relay; returns at once, whether or not the sink is there."""
        self._running = asyncio.create_task(self._run(), name="relay")

    async def stop(self) -> None:
        """Finish the records that are on their way, if the sink takes them soon, and give up the seat."""
        self._ending.set()
        if self._running is not None:
            _, unfinished = await asyncio.wait({self._running}, timeout=self._rhythm.grace)
            for task in unfinished:
                task.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _run(self) -> None:
        while not self._ending.is_set():
            try:
                await self._turn()
            except Exception as error:
                # Whatever it was, the log must not hear of it, and the next attempt may succeed.
                self._watch.failed(error, self._pause)
                await self._rest(self._pause)
                self._pause = min(self._pause * 2, self._rhythm.longest_pause)

    async def _turn(self) -> None:
        """Relay until something fails or the process ends; without the seat, look how far the sink is behind."""
        position = await self._seat.take()
        if position is None:
            await self._stand_by()
            return
        try:
            position = await self._sink.open((await self._log.head()).log_id, position)
            while not self._ending.is_set():
                position = await self._advance(position)
        finally:
            # Another replica may reach a sink that this one cannot.
            await self._sink.close()
            await self._seat.release()

    async def _advance(self, position: int) -> int:
        """Relay the next records and return the position behind them; wait if there are none."""
        began = self._clock.monotonic()
        page = await self._look(position, PAGE_SIZE, leads=True)
        if not page.records:
            await self._seat.hold()
            self._pause = self._rhythm.first_pause
            await self._tail.beyond(position, self._rhythm.poll)
            return position
        if missing := page.records[0].sequence - position:
            self._watch.missed(missing)
        await self._sink.publish([cloud_event(each, self._trust_domain) async for each in in_slices(page.records)])
        behind = page.records[-1].sequence + 1
        await self._seat.advance(behind)
        self._watch.relayed(len(page.records))
        self._pause = self._rhythm.first_pause
        await self._rest_seated(self._due_rest(self._clock.monotonic() - began, page))
        return behind

    def _due_rest(self, worked: float, page: Page) -> float:
        grew, self._size_before = self._size > self._size_before, self._size
        if not page.more:
            return max(self._rhythm.pace, rest_seconds(worked, self._behind))
        return rest_seconds(worked, self._behind) if grew else 0.0

    async def _stand_by(self) -> None:
        await self._look(await self._seat.position(), 1, leads=False)
        await self._rest(self._rhythm.stand_by)

    async def _look(self, position: int, limit: int, *, leads: bool) -> Page:
        """Read on from a position, and tell how much is left."""
        size = self._size = (await self._log.head()).size
        page = Page([], more=False)
        if position < size:
            page = await self._log.page(_EVERYTHING, Span(position, size, ascending=True), limit)
        self._behind = self._age(page.records[0].log_time) if page.records else 0.0
        self._watch.standing(Standing(leads, max(0, size - position), self._behind))
        return page

    def _age(self, moment: datetime) -> float:
        return max(0.0, (self._clock.now() - moment).total_seconds())

    async def _rest_seated(self, seconds: float) -> None:
        """Rest without losing the seat over it: a slow sink makes for long rests."""
        while seconds > self._rhythm.silence and not self._ending.is_set():
            await self._rest(self._rhythm.silence)
            await self._seat.hold()
            seconds -= self._rhythm.silence
        await self._rest(seconds)

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._ending.wait()
        except TimeoutError:
            return
