"""Order, positions and timing of the relay, with sinks that fail on cue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from libs.common.json.canonical import canonical
from libs.common.testing.clock import ManualClock
from services.audit.domain.errors import LeaseLostError, SinkError
from services.audit.domain.log.tail import Tail
from services.audit.domain.merkle.merkle import CompactRange, leaf_hash
from services.audit.domain.model import LoggedRecord, Page, RecordFilter, Span, TreeHead
from services.audit.domain.relay.cloudevent import CloudEvent
from services.audit.domain.relay.follower_throttle import rest_seconds
from services.audit.domain.relay.ports import RelayStatus
from services.audit.domain.relay.relay import PAGE_SIZE, Relay, RelayTiming
from services.audit.tests.sample import an_entry

QUICK = RelayTiming(
    poll=0.01, pace=0, stand_by=0.01, first_pause=0.01, longest_pause=0.02, stop_timeout=0.2, renew_after=1000
)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class GrowingLog:
    """An in-memory log that can grow and drop old records."""

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

    async def page(self, record_filter: RecordFilter, span: Span, limit: int) -> Page:
        found = self.records[max(span.first, self.archived) : span.end]
        return Page(found[:limit], more=len(found) > limit)

    async def get_by_sequence(self, log_id: str, sequence: int) -> LoggedRecord | None:
        return self.records[sequence]

    async def get_by_record_id(self, record_id: str) -> LoggedRecord | None:
        return None


class LeaseTable:
    """The shared position and the current holder."""

    def __init__(self) -> None:
        self.position, self.holder = 0, None

    holder: Any


class SharedLease:
    """One replica's view of the lease."""

    def __init__(self, table: LeaseTable) -> None:
        self.table = table

    async def acquire(self) -> int | None:
        if self.table.holder not in (None, self):
            return None
        self.table.holder = self
        return self.table.position

    async def renew(self) -> None:
        if self.table.holder is not self:
            raise LeaseLostError

    async def advance(self, position: int) -> None:
        await self.renew()
        self.table.position = max(self.table.position, position)

    async def position(self) -> int:
        return self.table.position

    async def release(self) -> None:
        if self.table.holder is self:
            self.table.holder = None


class RecordingSink:
    """Records published events; while `failing`, accepts `takes` of them and raises."""

    name = "noting"

    def __init__(self) -> None:
        self.published: list[int] = []
        self.failing = False
        self.hanging = False
        self.takes = 0
        self.lost = 0
        self.erased: list[int] = []
        self.failing_erase = False
        self.opened = self.closed = 0

    async def open(self, log_id: str, position: int) -> int:
        self.opened += 1
        return max(0, position - self.lost)

    async def publish(self, events: Sequence[CloudEvent]) -> None:
        if self.hanging:
            await asyncio.Event().wait()
        taken = events[: self.takes] if self.failing else events
        self.published += [event.sequence for event in taken]
        if self.failing:
            raise SinkError("on cue")

    async def erase(self, sequences: Sequence[int]) -> None:
        if self.failing_erase:
            raise SinkError("on cue")
        self.erased += sequences

    async def close(self) -> None:
        self.closed += 1


class RecordingObserver:
    """Records what the relay reports."""

    def __init__(self) -> None:
        self.statuses: list[RelayStatus] = []
        self.failures: list[tuple[type[Exception], float]] = []
        self.missing = self.count = 0

    def report_status(self, status: RelayStatus) -> None:
        self.statuses.append(status)

    def report_relayed(self, records: int) -> None:
        self.count += records

    def report_missed(self, records: int) -> None:
        self.missing += records

    def report_failure(self, error: Exception, pause: float) -> None:
        self.failures.append((type(error), pause))


class Setup:
    """A log, a lease table, and relays on them."""

    def __init__(self) -> None:
        self.log, self.tail, self.table = GrowingLog(), Tail(), LeaseTable()
        self.relays: list[Relay] = []

    async def relay(self, sink: RecordingSink) -> tuple[Relay, RecordingObserver]:
        observer = RecordingObserver()
        made = Relay(
            self.log,
            self.tail,
            SharedLease(self.table),
            sink,
            observer,
            ManualClock(NOW),
            trust_domain="toolmesh.local",
            timing=QUICK,
        )
        self.relays.append(made)
        await made.start()
        return made, observer


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    made = Setup()
    yield made
    for relay in made.relays:
        await relay.stop()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  (fakes have no event to set)
            await asyncio.sleep(0.002)


async def test_everything_is_published_in_order_and_the_position_follows(setup: Setup) -> None:
    setup.log.grow(2500)
    sink = RecordingSink()
    _, observer = await setup.relay(sink)
    await until(lambda: setup.table.position == 2500)
    setup.log.grow(10)
    setup.tail.advance(2510)
    await until(lambda: setup.table.position == 2510)
    assert sink.published == list(range(2510))
    assert observer.count == 2510


async def test_the_position_waits_for_the_acknowledgement(setup: Setup) -> None:
    setup.log.grow(5)
    sink = RecordingSink()
    sink.failing, sink.takes = True, 3
    _, observer = await setup.relay(sink)
    await until(lambda: len(observer.failures) >= 3)
    assert setup.table.position == 0
    sink.failing = False
    await until(lambda: setup.table.position == 5)
    # Published again from the position on, so first deliveries are in order.
    assert list(dict.fromkeys(sink.published)) == [0, 1, 2, 3, 4]
    assert sink.opened == sink.closed + 1


async def test_the_position_waits_for_the_removal_of_an_erased_payload(setup: Setup) -> None:
    setup.log.grow(1)
    [first] = setup.log.records
    sink = RecordingSink()
    sink.failing_erase = True
    for form in (
        {"event_class": "payload_erased", "erasure": {"sequence": 0}},
        {"event_class": "invocation_failed", "arguments_summary": {"event_class": "payload_erased"}},
    ):
        form |= {"record_id": "r", "event_time": "2026-11-15T08:00:00.000000Z", "writer": "audit"}
        setup.log.records.append(replace(first, sequence=len(setup.log.records), canonical=canonical(form)))
    _, observer = await setup.relay(sink)
    await until(lambda: len(observer.failures) >= 2)
    assert setup.table.position == 0
    sink.failing_erase = False
    await until(lambda: setup.table.position == 3)
    assert sink.erased == [0]


async def test_the_backoff_grows_to_its_limit_and_resets_after_a_success(setup: Setup) -> None:
    setup.log.grow(1)
    sink = RecordingSink()
    sink.failing = True
    _, observer = await setup.relay(sink)
    await until(lambda: len(observer.failures) >= 4)
    assert [pause for _, pause in observer.failures[:4]] == [0.01, 0.02, 0.02, 0.02]
    sink.failing = False
    await until(lambda: setup.table.position == 1)
    count = len(observer.failures)
    sink.failing = True
    setup.log.grow(1)
    setup.tail.advance(2)
    await until(lambda: len(observer.failures) > count)
    assert observer.failures[count] == (SinkError, 0.01)


async def test_one_replica_relays_and_another_takes_over(setup: Setup) -> None:
    setup.log.grow(10)
    first, second = RecordingSink(), RecordingSink()
    one, _ = await setup.relay(first)
    await until(lambda: setup.table.position == 10)
    _, observer = await setup.relay(second)
    await until(lambda: observer.statuses)
    assert {status.leads for status in observer.statuses} == {False}
    await one.stop()
    setup.log.grow(5)
    await until(lambda: setup.table.position == 15)
    assert second.published == [10, 11, 12, 13, 14]
    assert observer.statuses[-1].leads


async def test_a_replica_that_cannot_reach_the_sink_leaves_the_lease_to_another(setup: Setup) -> None:
    setup.log.grow(10)
    broken, good = RecordingSink(), RecordingSink()
    broken.failing = True
    await setup.relay(broken)
    await setup.relay(good)
    await until(lambda: setup.table.position == 10)
    assert good.published == list(range(10))


async def test_a_lost_lease_ends_relaying(setup: Setup) -> None:
    sink = RecordingSink()
    _, observer = await setup.relay(sink)
    await until(lambda: sink.opened)
    setup.table.holder = "another"
    await until(lambda: observer.failures)
    assert observer.failures[0][0] is LeaseLostError
    setup.log.grow(3)
    await until(lambda: observer.statuses[-1] == RelayStatus(leads=False, records_behind=3, seconds_behind=0.0))
    assert sink.published == []


async def test_a_sink_that_lost_something_receives_it_again(setup: Setup) -> None:
    setup.log.grow(10)
    setup.table.position = 8
    sink = RecordingSink()
    sink.lost = 4
    await setup.relay(sink)
    await until(lambda: setup.table.position == 10)
    assert sink.published == list(range(4, 10))


async def test_the_status_reports_the_lag_in_records_and_seconds(setup: Setup) -> None:
    setup.log.grow(4, age=30)
    sink = RecordingSink()
    sink.failing = True
    _, observer = await setup.relay(sink)
    await until(lambda: observer.failures)
    assert observer.statuses[0] == RelayStatus(leads=True, records_behind=4, seconds_behind=30.0)
    sink.failing = False
    await until(lambda: observer.statuses[-1] == RelayStatus(leads=True, records_behind=0, seconds_behind=0.0))


async def test_records_that_were_archived_first_are_passed_over_and_counted(setup: Setup) -> None:
    setup.log.grow(10)
    setup.log.archived = 6
    sink = RecordingSink()
    _, observer = await setup.relay(sink)
    await until(lambda: setup.table.position == 10)
    assert sink.published == [6, 7, 8, 9]
    assert observer.missing == 6


async def test_a_sink_that_hangs_does_not_keep_the_process(setup: Setup) -> None:
    setup.log.grow(1)
    sink = RecordingSink()
    sink.hanging = True
    relay, observer = await setup.relay(sink)
    await until(lambda: observer.statuses)
    async with asyncio.timeout(60):
        await relay.stop()
    assert setup.table.holder is None
    assert (setup.table.position, sink.closed) == (0, 1)


async def test_the_relay_survives_an_unexpected_failure(setup: Setup) -> None:
    setup.log.grow(2)
    sink = RecordingSink()

    async def explode(events: Sequence[CloudEvent]) -> None:
        raise ZeroDivisionError

    good, sink.publish = sink.publish, explode  # type: ignore[method-assign]
    _, observer = await setup.relay(sink)
    await until(lambda: observer.failures)
    sink.publish = good  # type: ignore[method-assign]
    await until(lambda: setup.table.position == 2)


class RestRecordingRelay(Relay):
    """Records its rests instead of resting."""

    def __init__(self, *parts: Any, **options: Any) -> None:
        super().__init__(*parts, **options)
        self.rests: list[float] = []

    async def _rest(self, seconds: float) -> None:
        self.rests.append(seconds)
        await asyncio.sleep(0)


@pytest.mark.parametrize("grows", [True, False], ids=["while it grows", "when quiet"])
async def test_far_behind_the_relay_rests_only_while_the_log_grows(setup: Setup, grows: bool) -> None:
    clock = ManualClock(NOW)

    class WorkingSink(RecordingSink):
        """Takes four seconds for each page, in which others may append."""

        async def publish(self, events: Sequence[CloudEvent]) -> None:
            clock.advance(4.0)
            setup.log.grow(1 if grows else 0)
            await super().publish(events)

    setup.log.grow(4 * PAGE_SIZE)
    sink = WorkingSink()
    lease, observer = SharedLease(setup.table), RecordingObserver()
    relay = RestRecordingRelay(
        setup.log, setup.tail, lease, sink, observer, clock, trust_domain="toolmesh.local", timing=QUICK
    )
    setup.relays.append(relay)
    await relay.start()
    await until(lambda: len(sink.published) >= 4 * PAGE_SIZE)
    # Growth is known only from the second page on, when the lag is four and eight seconds.
    assert relay.rests[1:3] == ([rest_seconds(4.0, 4.0), rest_seconds(4.0, 8.0)] if grows else [0.0, 0.0])


async def test_a_long_rest_does_not_cost_the_lease(setup: Setup) -> None:
    """A sink that takes seconds for a page causes rests longer than the lifetime of the lease."""
    clock = ManualClock(NOW)

    class SlowSink(RecordingSink):
        async def publish(self, events: Sequence[CloudEvent]) -> None:
            clock.advance(3.0)
            setup.log.grow(1)
            await super().publish(events)

    class ExpiringLease(SharedLease):
        """Expires after 30 s without a renewal, as the lease in PostgreSQL does."""

        last_renewed = 0.0

        async def acquire(self) -> int | None:
            self.last_renewed = clock.monotonic()
            return await super().acquire()

        async def renew(self) -> None:
            if clock.monotonic() - self.last_renewed > 30:
                await self.release()
            self.last_renewed = clock.monotonic()
            await super().renew()

    class TimedRelay(Relay):
        async def _rest(self, seconds: float) -> None:
            clock.advance(seconds)
            await asyncio.sleep(0)

    setup.log.grow(4 * PAGE_SIZE)
    sink, lease, observer = SlowSink(), ExpiringLease(setup.table), RecordingObserver()
    relay = TimedRelay(setup.log, setup.tail, lease, sink, observer, clock, trust_domain="toolmesh.local")
    setup.relays.append(relay)
    await relay.start()
    await until(lambda: len(sink.published) >= 4 * PAGE_SIZE)
    assert not observer.failures
    assert sink.published == sorted(set(sink.published))
