"""The relay's order, positions and patience, with sinks that misbehave on cue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from libs.common.testing.clock import ManualClock
from services.audit.domain.errors import SeatLostError, SinkError
from services.audit.domain.log.tail import Tail
from services.audit.domain.merkle.merkle import CompactRange, leaf_hash
from services.audit.domain.model import LoggedRecord, Page, RecordFilter, Span, Standing, TreeHead
from services.audit.domain.relay.cloudevent import CloudEvent
from services.audit.domain.relay.relay import PAGE_SIZE, Relay, Rhythm
from services.audit.domain.relay.throttle import rest_seconds
from services.audit.tests.sample import an_entry

QUICK = Rhythm(poll=0.01, pace=0, stand_by=0.01, first_pause=0.01, longest_pause=0.02, grace=0.2, silence=1000)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class GrowingLog:
    """A log in memory that can be grown, and whose old records can be archived away."""

    def __init__(self) -> None:
        self.records: list[LoggedRecord] = []
        self.archived = 0

    def grow(self, count: int, age: float = 0.0) -> None:
        canonical = an_entry().canonical
        for _ in range(count):
            at = NOW - timedelta(seconds=age)
            self.records.append(LoggedRecord("a-log", len(self.records), canonical, leaf_hash(canonical), at))

    async def head(self) -> TreeHead:
        size = len(self.records)
        return TreeHead("a-log", CompactRange(size, (b"",) * size.bit_count()))

    async def page(self, wanted: RecordFilter, span: Span, limit: int) -> Page:
        found = self.records[max(span.first, self.archived) : span.end]
        return Page(found[:limit], more=len(found) > limit)

    async def by_sequence(self, log_id: str, sequence: int) -> LoggedRecord | None:
        return self.records[sequence]

    async def by_record_id(self, record_id: str) -> LoggedRecord | None:
        return None


class Table:
    """The position that all seats share, and who sits."""

    def __init__(self) -> None:
        self.position, self.sitting = 0, None

    sitting: Any


class TableSeat:
    """One replica's view of the seat."""

    def __init__(self, table: Table) -> None:
        self.table = table

    async def take(self) -> int | None:
        if self.table.sitting not in (None, self):
            return None
        self.table.sitting = self
        return self.table.position

    async def hold(self) -> None:
        if self.table.sitting is not self:
            raise SeatLostError

    async def advance(self, position: int) -> None:
        await self.hold()
        self.table.position = max(self.table.position, position)

    async def position(self) -> int:
        return self.table.position

    async def release(self) -> None:
        if self.table.sitting is self:
            self.table.sitting = None


class NotingSink:
    """Notes what it is told; fails while `failing`, having taken `takes` of the events."""

    name = "noting"

    def __init__(self) -> None:
        self.told: list[int] = []
        self.failing = False
        self.hanging = False
        self.takes = 0
        self.lost = 0
        self.opened = self.closed = 0

    async def open(self, log_id: str, position: int) -> int:
        self.opened += 1
        return max(0, position - self.lost)

    async def publish(self, events: Sequence[CloudEvent]) -> None:
        if self.hanging:
            await asyncio.Event().wait()
        taken = events[: self.takes] if self.failing else events
        self.told += [event.sequence for event in taken]
        if self.failing:
            raise SinkError("on cue")

    async def close(self) -> None:
        self.closed += 1


class NotingWatch:
    """Notes what the relay says of itself."""

    def __init__(self) -> None:
        self.stood: list[Standing] = []
        self.failures: list[tuple[type[Exception], float]] = []
        self.missing = self.count = 0

    def standing(self, standing: Standing) -> None:
        self.stood.append(standing)

    def relayed(self, records: int) -> None:
        self.count += records

    def missed(self, records: int) -> None:
        self.missing += records

    def failed(self, error: Exception, pause: float) -> None:
        self.failures.append((type(error), pause))


class Setup:
    """A log, a table, and relays on them."""

    def __init__(self) -> None:
        self.log, self.tail, self.table = GrowingLog(), Tail(), Table()
        self.relays: list[Relay] = []

    async def relay(self, sink: NotingSink) -> tuple[Relay, NotingWatch]:
        watch = NotingWatch()
        made = Relay(
            self.log,
            self.tail,
            TableSeat(self.table),
            sink,
            watch,
            ManualClock(NOW),
            trust_domain="toolmesh.local",
            rhythm=QUICK,
        )
        self.relays.append(made)
        await made.start()
        return made, watch


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    made = Setup()
    yield made
    for relay in made.relays:
        await relay.stop()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  (fakes have no event to set)
            await asyncio.sleep(0.002)


async def test_everything_is_told_in_order_and_the_position_follows(setup: Setup) -> None:
    setup.log.grow(2500)
    sink = NotingSink()
    _, watch = await setup.relay(sink)
    await until(lambda: setup.table.position == 2500)
    setup.log.grow(10)
    setup.tail.reached(2510)
    await until(lambda: setup.table.position == 2510)
    assert sink.told == list(range(2510))
    assert watch.count == 2510


async def test_the_position_waits_for_the_acknowledgement(setup: Setup) -> None:
    setup.log.grow(5)
    sink = NotingSink()
    sink.failing, sink.takes = True, 3
    _, watch = await setup.relay(sink)
    await until(lambda: len(watch.failures) >= 3)
    assert setup.table.position == 0
    sink.failing = False
    await until(lambda: setup.table.position == 5)
    # Told again from the position, so for the first time always in order.
    assert list(dict.fromkeys(sink.told)) == [0, 1, 2, 3, 4]
    assert sink.opened == sink.closed + 1


async def test_the_pause_grows_to_its_limit_and_begins_anew_after_a_success(setup: Setup) -> None:
    setup.log.grow(1)
    sink = NotingSink()
    sink.failing = True
    _, watch = await setup.relay(sink)
    await until(lambda: len(watch.failures) >= 4)
    assert [pause for _, pause in watch.failures[:4]] == [0.01, 0.02, 0.02, 0.02]
    sink.failing = False
    await until(lambda: setup.table.position == 1)
    count = len(watch.failures)
    sink.failing = True
    setup.log.grow(1)
    setup.tail.reached(2)
    await until(lambda: len(watch.failures) > count)
    assert watch.failures[count] == (SinkError, 0.01)


async def test_one_replica_relays_and_another_takes_over(setup: Setup) -> None:
    setup.log.grow(10)
    first, second = NotingSink(), NotingSink()
    one, _ = await setup.relay(first)
    await until(lambda: setup.table.position == 10)
    _, watch = await setup.relay(second)
    await until(lambda: watch.stood)
    assert {standing.leads for standing in watch.stood} == {False}
    await one.stop()
    setup.log.grow(5)
    await until(lambda: setup.table.position == 15)
    assert second.told == [10, 11, 12, 13, 14]
    assert watch.stood[-1].leads


async def test_a_replica_that_cannot_reach_the_sink_leaves_the_seat_to_another(setup: Setup) -> None:
    setup.log.grow(10)
    broken, good = NotingSink(), NotingSink()
    broken.failing = True
    await setup.relay(broken)
    await setup.relay(good)
    await until(lambda: setup.table.position == 10)
    assert good.told == list(range(10))


async def test_a_lost_seat_ends_the_turn(setup: Setup) -> None:
    sink = NotingSink()
    _, watch = await setup.relay(sink)
    await until(lambda: sink.opened)
    setup.table.sitting = "another"
    await until(lambda: watch.failures)
    assert watch.failures[0][0] is SeatLostError
    setup.log.grow(3)
    await until(lambda: watch.stood[-1] == Standing(leads=False, records_behind=3, seconds_behind=0.0))
    assert sink.told == []


async def test_a_sink_that_lost_something_is_told_again(setup: Setup) -> None:
    setup.log.grow(10)
    setup.table.position = 8
    sink = NotingSink()
    sink.lost = 4
    await setup.relay(sink)
    await until(lambda: setup.table.position == 10)
    assert sink.told == list(range(4, 10))


async def test_how_far_behind_it_is_in_records_and_seconds(setup: Setup) -> None:
    setup.log.grow(4, age=30)
    sink = NotingSink()
    sink.failing = True
    _, watch = await setup.relay(sink)
    await until(lambda: watch.failures)
    assert watch.stood[0] == Standing(leads=True, records_behind=4, seconds_behind=30.0)
    sink.failing = False
    await until(lambda: watch.stood[-1] == Standing(leads=True, records_behind=0, seconds_behind=0.0))


async def test_records_that_were_archived_first_are_passed_over_and_counted(setup: Setup) -> None:
    setup.log.grow(10)
    setup.log.archived = 6
    sink = NotingSink()
    _, watch = await setup.relay(sink)
    await until(lambda: setup.table.position == 10)
    assert sink.told == [6, 7, 8, 9]
    assert watch.missing == 6


async def test_a_sink_that_hangs_does_not_keep_the_process(setup: Setup) -> None:
    setup.log.grow(1)
    sink = NotingSink()
    sink.hanging = True
    relay, watch = await setup.relay(sink)
    await until(lambda: watch.stood)
    async with asyncio.timeout(5):
        await relay.stop()
    assert setup.table.sitting is None
    assert (setup.table.position, sink.closed) == (0, 1)


async def test_a_failure_that_nobody_foresaw_is_survived(setup: Setup) -> None:
    setup.log.grow(2)
    sink = NotingSink()

    async def explode(events: Sequence[CloudEvent]) -> None:
        raise ZeroDivisionError

    good, sink.publish = sink.publish, explode  # type: ignore[method-assign]
    _, watch = await setup.relay(sink)
    await until(lambda: watch.failures)
    sink.publish = good  # type: ignore[method-assign]
    await until(lambda: setup.table.position == 2)


class UnhurriedRelay(Relay):
    """Notes how long it would rest instead of resting."""

    def __init__(self, *parts: Any, **options: Any) -> None:
        super().__init__(*parts, **options)
        self.rests: list[float] = []

    async def _rest(self, seconds: float) -> None:
        self.rests.append(seconds)
        await asyncio.sleep(0)


@pytest.mark.parametrize("grows", [True, False], ids=["while it grows", "when quiet"])
async def test_far_behind_it_rests_only_while_the_log_grows(setup: Setup, grows: bool) -> None:
    clock = ManualClock(NOW)

    class WorkingSink(NotingSink):
        """Takes four seconds for each page, in which others may append."""

        async def publish(self, events: Sequence[CloudEvent]) -> None:
            clock.advance(4.0)
            setup.log.grow(1 if grows else 0)
            await super().publish(events)

    setup.log.grow(4 * PAGE_SIZE)
    sink = WorkingSink()
    seat, watch = TableSeat(setup.table), NotingWatch()
    relay = UnhurriedRelay(setup.log, setup.tail, seat, sink, watch, clock, trust_domain="toolmesh.local", rhythm=QUICK)
    setup.relays.append(relay)
    await relay.start()
    await until(lambda: len(sink.told) >= 4 * PAGE_SIZE)
    # The first page is the first that is known of the log at all, so only from the second on it can be seen to have grown.
    # It is four and eight seconds behind by then.
    assert relay.rests[1:3] == ([rest_seconds(4.0, 4.0), rest_seconds(4.0, 8.0)] if grows else [0.0, 0.0])


async def test_a_long_rest_does_not_cost_the_seat(setup: Setup) -> None:
    """A sink that takes seconds for a page earns the relay a rest of more than half a minute, after which a seat is lost."""
    clock = ManualClock(NOW)

    class SlowSink(NotingSink):
        async def publish(self, events: Sequence[CloudEvent]) -> None:
            clock.advance(3.0)
            setup.log.grow(1)
            await super().publish(events)

    class TimedSeat(TableSeat):
        """Is lost by whoever says nothing for half a minute, as the one in PostgreSQL is."""

        heard = 0.0

        async def take(self) -> int | None:
            self.heard = clock.monotonic()
            return await super().take()

        async def hold(self) -> None:
            if clock.monotonic() - self.heard > 30:
                await self.release()
            self.heard = clock.monotonic()
            await super().hold()

    class TimedRelay(Relay):
        async def _rest(self, seconds: float) -> None:
            clock.advance(seconds)
            await asyncio.sleep(0)

    setup.log.grow(4 * PAGE_SIZE)
    sink, seat, watch = SlowSink(), TimedSeat(setup.table), NotingWatch()
    relay = TimedRelay(setup.log, setup.tail, seat, sink, watch, clock, trust_domain="toolmesh.local")
    setup.relays.append(relay)
    await relay.start()
    await until(lambda: len(sink.told) >= 4 * PAGE_SIZE)
    assert not watch.failures
    assert sink.told == sorted(set(sink.told))
