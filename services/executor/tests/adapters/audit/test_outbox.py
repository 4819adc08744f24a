"""The outbox in PostgreSQL: durable, delivered in order by one replica at a time, and stored once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.errors import MeshError, Reason
from libs.common.ids import new_id
from libs.common.runtime.settings import Address
from libs.common.sql.engine import engine_for
from libs.common.telemetry.log import Log
from services.executor.adapters.audit.durable_trail import DurableTrail
from services.executor.adapters.audit.outbox import Outbox
from services.executor.adapters.audit.record_encoder import RecordEncoder
from services.executor.adapters.audit.stream import AuditStream
from services.executor.domain.model import Record
from services.executor.tests.peers import AuditPeer, serving
from services.executor.tests.samples import a_record
from services.executor.tests.waiting import until

NOWHERE = Address("127.0.0.1", 1)


class WatchedOutbox(Outbox):
    """Counts how often it was about to deliver something."""

    rounds = 0

    async def _deliver_batch(self) -> bool:
        self.rounds += 1
        return await super()._deliver_batch()


@dataclass
class Replica:
    """The audit trail of one executor."""

    stream: AuditStream
    outbox: WatchedOutbox
    trail: DurableTrail

    async def die(self) -> None:
        """End like a killed process: nothing is sent, kept or given back."""
        for task in (self.stream._running, self.outbox._delivering):
            assert task is not None
            task.cancel()
            await asyncio.wait([task])


MakeReplica = Callable[..., Any]


@pytest.fixture
async def replica(
    engines: tuple[AsyncEngine, AsyncEngine], reach: Callable[..., Any], quiet: Log
) -> AsyncIterator[MakeReplica]:
    """Return a factory of started trails on one database: `await replica(address, which=0, lease=...)`."""
    made: list[Replica] = []

    async def start(address: Address, *, which: int = 0, ack_seconds: float = 15.0, **changes: Any) -> Replica:
        encoder = RecordEncoder(f"e-{which}")
        options = {"owner": new_id(), "poll": 0.05, "lease": 0.4, **changes}
        outbox = WatchedOutbox(engines[which], encoder, quiet, **options)
        stream = AuditStream(
            await reach("audit", address),
            encoder,
            quiet,
            active=lambda: 1,
            on_settled=outbox.mark_settled,
            ack_seconds=ack_seconds,
        )
        outbox.attach(stream)
        trail = DurableTrail(stream, outbox, quiet)
        await trail.start()
        made.append(Replica(stream, outbox, trail))
        return made[-1]

    yield start
    for one in made:
        await one.die()


async def waiting(engine: AsyncEngine) -> list[str]:
    async with engine.begin() as connection:
        rows = await connection.execute(text("select record_id from outbox order by sequence"))
        return [row.record_id for row in rows]


async def left(engine: AsyncEngine, expected: list[str]) -> None:
    """Return once exactly these wait."""
    async with asyncio.timeout(60):
        while await waiting(engine) != expected:  # noqa: ASYNC110  (a table has no change event)
            await asyncio.sleep(0.01)


def outcomes(count: int) -> list[Record]:
    return [a_record(follows="01900000-decision") for _ in range(count)]


async def conclude_all(one: Replica, records: Sequence[Record], within: float = 2.0) -> None:
    await asyncio.gather(*(one.trail.conclude(record, within=within) for record in records))


async def test_a_log_that_confirms_in_time_leaves_the_outbox_alone(
    replica: MakeReplica, audit: AuditPeer, engines: tuple[AsyncEngine, AsyncEngine]
) -> None:
    one = await replica(audit.address)
    [record] = outcomes(1)
    await one.trail.conclude(record, within=10)
    assert audit.ids == [record.record_id]
    assert one.outbox._writing is None
    assert await waiting(engines[0]) == []


async def test_an_unconfirmed_outcome_is_in_the_outbox_when_conclude_returns(
    replica: MakeReplica, engines: tuple[AsyncEngine, AsyncEngine]
) -> None:
    one = await replica(NOWHERE)
    records = outcomes(5)
    await conclude_all(one, records)
    assert sorted(await waiting(engines[0])) == sorted(record.record_id for record in records)


async def test_concurrent_outcomes_share_a_commit_and_keep_their_order(
    replica: MakeReplica, engines: tuple[AsyncEngine, AsyncEngine]
) -> None:
    one = await replica(NOWHERE)
    records = outcomes(300)
    await asyncio.gather(*(one.outbox.store(record, None) for record in records))
    assert await waiting(engines[0]) == [record.record_id for record in records]


async def test_the_outbox_is_delivered_in_order_and_once_when_the_log_returns(
    pki: Any, replica: MakeReplica, engines: tuple[AsyncEngine, AsyncEngine]
) -> None:
    log = AuditPeer()  # type: ignore[abstract]
    async with serving(pki, "audit", log.add) as address:
        one = await replica(address)
        first = a_record()
        await one.trail.append(first, within=10)
    records = outcomes(450)
    await asyncio.gather(*(one.outbox.store(record, one.stream.enqueue(record)) for record in records[:150]))
    await asyncio.gather(*(one.outbox.store(record, None) for record in records[150:]))
    async with serving(pki, "audit", log.add, port=address.port):
        await until(lambda: len(log.records) == 451)
        assert log.ids == [first.record_id, *(record.record_id for record in records)]
        await left(engines[0], [])


async def test_the_outbox_of_a_killed_replica_is_delivered_by_its_successor(
    replica: MakeReplica, audit: AuditPeer, engines: tuple[AsyncEngine, AsyncEngine]
) -> None:
    one = await replica(NOWHERE)
    records = outcomes(20)
    await conclude_all(one, records)
    await one.die()
    await replica(audit.address, which=1)
    await left(engines[0], [])
    assert audit.ids == [record.record_id for record in records]


async def test_only_the_lease_holder_delivers_and_a_dead_one_is_replaced(
    replica: MakeReplica, audit: AuditPeer, engines: tuple[AsyncEngine, AsyncEngine]
) -> None:
    holder = await replica(NOWHERE, lease=1.5)
    records = outcomes(3)
    await conclude_all(holder, records)
    await until(lambda: holder.stream.waiting >= 3)
    other = await replica(audit.address, which=1)
    assert await other.outbox._rows.acquire_lease() is False
    await holder.die()
    await left(engines[0], [])
    assert audit.ids == [record.record_id for record in records]


async def test_a_replica_that_stops_releases_the_lease_and_stores_its_queue(
    replica: MakeReplica, audit: AuditPeer, engines: tuple[AsyncEngine, AsyncEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.executor.adapters.audit.stream.FLUSH_SECONDS", 0.05)
    one = await replica(NOWHERE, lease=3600.0)
    records = outcomes(3)
    await conclude_all(one, records)
    unsent = a_record(follows="01900000-decision")
    one.trail.leave(unsent)
    await one.trail.stop()
    assert set(await waiting(engines[0])) == {record.record_id for record in [*records, unsent]}
    await replica(audit.address, which=1)
    await left(engines[0], [])
    assert audit.ids == [record.record_id for record in [*records, unsent]]


async def test_a_record_that_the_stream_delivers_leaves_the_outbox(
    replica: MakeReplica, audit: AuditPeer, engines: tuple[AsyncEngine, AsyncEngine]
) -> None:
    """The acknowledgement arrives after the record was stored in the outbox; it is not sent again."""
    one = await replica(audit.address)
    audit.acknowledging.clear()
    [record] = outcomes(1)
    await one.trail.conclude(record, within=2.0)
    assert await waiting(engines[0]) == [record.record_id]
    await until(lambda: one.outbox.rounds > 2)
    assert one.stream.waiting == 1
    audit.acknowledging.set()
    await left(engines[0], [])
    assert audit.batches == [1]


async def test_a_canceled_caller_of_a_silent_log_still_gets_its_outcome_recorded(
    replica: MakeReplica, engines: tuple[AsyncEngine, AsyncEngine]
) -> None:
    one = await replica(NOWHERE)
    [record] = outcomes(1)
    concluding = asyncio.ensure_future(one.trail.conclude(record, within=0.3))
    await until(lambda: one.stream.waiting == 1)
    concluding.cancel()
    await left(engines[0], [record.record_id])


async def test_a_refused_record_stays_in_the_outbox_and_does_not_block_others(
    replica: MakeReplica, audit: AuditPeer, engines: tuple[AsyncEngine, AsyncEngine]
) -> None:
    one = await replica(NOWHERE)
    records = outcomes(4)
    await conclude_all(one, records)
    await one.die()
    audit.refused = {records[1].record_id}
    other = await replica(audit.address, which=1)
    await until(lambda: len(audit.records) == 3)
    await left(engines[0], [records[1].record_id])
    status = await other.outbox._rows.status()
    assert (status.waiting, status.refused) == (0, 1)
    assert audit.ids == [record.record_id for record in records if record is not records[1]]


async def set_aside(engine: AsyncEngine, one: Replica, record: Record) -> None:
    """Return once this record is here and set aside, as it would have been sent."""
    await left(engine, [record.record_id])
    async with engine.begin() as connection:
        [row] = await connection.execute(text("select fragment, refuse_time from outbox"))
    assert row.fragment == one.outbox._encoder.encode(record)
    assert row.refuse_time is not None


async def test_a_refused_outcome_is_stored_in_the_outbox(
    replica: MakeReplica, audit: AuditPeer, engines: tuple[AsyncEngine, AsyncEngine]
) -> None:
    one = await replica(audit.address)
    refused, other = outcomes(2)
    audit.refused = {refused.record_id}
    with pytest.raises(MeshError) as caught:
        await one.trail.conclude(refused, within=10)
    assert caught.value.reason is Reason.AUDIT_RECORD_INVALID
    await set_aside(engines[0], one, refused)
    await one.trail.conclude(other, within=10)
    assert audit.ids == [other.record_id]
    assert await one.outbox._rows.oldest() == []


async def test_an_oversized_outcome_is_recorded_in_its_reduced_form(
    replica: MakeReplica, audit: AuditPeer, engines: tuple[AsyncEngine, AsyncEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await replica(audit.address)
    monkeypatch.setattr("services.executor.adapters.audit.stream.RECORD_BYTES", 10)
    [record] = outcomes(1)
    await one.trail.conclude(record, within=10)
    assert [(each.record_id, bool(each.reduced_reason)) for each in audit.records] == [(record.record_id, True)]
    assert await waiting(engines[0]) == []


async def test_an_outcome_that_the_log_refuses_in_full_is_recorded_reduced(
    replica: MakeReplica, audit: AuditPeer, engines: tuple[AsyncEngine, AsyncEngine]
) -> None:
    one = await replica(audit.address)
    audit.refuses = lambda record: not record.reduced_reason
    records = outcomes(3)
    await conclude_all(one, records)
    assert {record.record_id for record in audit.records} == {record.record_id for record in records}
    assert await waiting(engines[0]) == []


async def test_an_outcome_delivered_from_the_outbox_is_reduced_too(
    replica: MakeReplica, audit: AuditPeer, engines: tuple[AsyncEngine, AsyncEngine]
) -> None:
    audit.refuses = lambda record: not record.reduced_reason
    away = await replica(NOWHERE)
    [record] = outcomes(1)
    await away.trail.conclude(record, within=2.0)
    await away.outbox.stop()
    other = await replica(audit.address, which=1)
    await until(lambda: bool(audit.records))
    await until(lambda: other.stream.waiting == 0)
    assert [(each.record_id, bool(each.reduced_reason)) for each in audit.records] == [(record.record_id, True)]


async def test_a_canceled_caller_of_a_refused_outcome_still_gets_it_stored(
    replica: MakeReplica, audit: AuditPeer, engines: tuple[AsyncEngine, AsyncEngine]
) -> None:
    one = await replica(audit.address)
    [record] = outcomes(1)
    audit.refused = {record.record_id}
    concluding = asyncio.ensure_future(one.trail.conclude(record, within=10))
    await until(lambda: one.stream.waiting == 1)
    concluding.cancel()
    await set_aside(engines[0], one, record)


def given_up(one: Replica, audit: AuditPeer) -> tuple[Record, Any]:
    """Queue a record that the log will refuse, with a canceled waiter."""
    [record] = outcomes(1)
    audit.refused = {record.record_id}
    pending = one.stream.enqueue(record)
    assert pending.waiter is not None
    pending.waiter.cancel()
    return record, pending


async def test_a_refusal_before_the_wait_ends_the_wait_at_once(
    replica: MakeReplica, audit: AuditPeer, engines: tuple[AsyncEngine, AsyncEngine]
) -> None:
    one = await replica(audit.address)
    record, pending = given_up(one, audit)
    await until(lambda: not one.stream.waiting)
    await asyncio.wait_for(one.trail._conclude_unawaited(record, pending, 10), 60)
    await set_aside(engines[0], one, record)


@pytest.mark.parametrize("refused", [True, False])
async def test_cancellation_at_the_moment_of_the_answer_leaves_no_pending_task(
    replica: MakeReplica,
    audit: AuditPeer,
    engines: tuple[AsyncEngine, AsyncEngine],
    monkeypatch: pytest.MonkeyPatch,
    refused: bool,
) -> None:
    one = await replica(audit.address)
    [record] = outcomes(1)
    audit.refused = {record.record_id} if refused else set()
    method = "_refuse" if refused else "_acknowledge"
    take_note = getattr(one.stream, method)

    def and_leave(*answer: Any) -> Any:
        taken = take_note(*answer)
        # Its future is done but the task has not resumed, so the cancellation hides the answer.
        concluding.cancel()
        return taken

    monkeypatch.setattr(one.stream, method, and_leave)
    concluding = asyncio.ensure_future(one.trail.conclude(record, within=10))
    await asyncio.wait([concluding])
    assert concluding.cancelled()
    await until(lambda: not one.trail._tasks)
    if refused:
        await set_aside(engines[0], one, record)
    else:
        assert (audit.ids, await waiting(engines[0])) == ([record.record_id], [])


async def test_a_refusal_during_the_commit_marks_the_row_as_refused(
    replica: MakeReplica, audit: AuditPeer, engines: tuple[AsyncEngine, AsyncEngine]
) -> None:
    one = await replica(audit.address)
    # The caller stores the outcome in the outbox at the moment in which the log refuses it.
    record, pending = given_up(one, audit)
    await until(lambda: pending.refused)
    await one.outbox.store(record, pending)
    async with asyncio.timeout(60):
        while (await one.outbox._rows.status()).refused != 1:  # noqa: ASYNC110  (a table has no change event)
            await asyncio.sleep(0.01)
    await set_aside(engines[0], one, record)


async def test_a_refused_outcome_is_reported_even_if_the_outbox_fails(
    replica: MakeReplica, audit: AuditPeer, quiet: Log
) -> None:
    one = await replica(audit.address)
    [record] = outcomes(1)
    audit.refused = {record.record_id}
    away = engine_for("postgresql://nobody:x@127.0.0.1:1/none", schema="executor")
    one.outbox._rows._engine = away
    one.outbox._log = one.trail._log = Log("executor", descriptor=os.open(os.devnull, os.O_WRONLY))
    with pytest.raises(MeshError) as caught:
        await one.trail.conclude(record, within=2.0)
    assert caught.value.reason is Reason.AUDIT_RECORD_INVALID
    await away.dispose()


async def test_a_full_outbox_refuses_new_calls_and_accepts_outcomes(
    replica: MakeReplica, audit: AuditPeer, engines: tuple[AsyncEngine, AsyncEngine]
) -> None:
    one = await replica(NOWHERE, limit=2)
    one.trail.admit()
    records = outcomes(3)
    await conclude_all(one, records)
    # A count that was begun before may end afterwards; the next one is right.
    await until(lambda: one.outbox.full)
    with pytest.raises(MeshError) as caught:
        one.trail.admit()
    assert caught.value.reason is Reason.AUDIT_BACKPRESSURE
    assert len(await waiting(engines[0])) == 3
    await one.die()
    other = await replica(audit.address, which=1, limit=2)
    await left(engines[0], [])
    await until(lambda: not other.outbox.full)
    other.trail.admit()


async def test_conclude_fails_without_log_and_database(
    replica: MakeReplica, engines: tuple[AsyncEngine, AsyncEngine], quiet: Log
) -> None:
    one = await replica(NOWHERE)
    away = engine_for("postgresql://nobody:x@127.0.0.1:1/none", schema="executor")
    one.outbox._rows._engine = away
    one.outbox._log = one.trail._log = Log("executor", descriptor=os.open(os.devnull, os.O_WRONLY))
    with pytest.raises(MeshError) as caught:
        await one.trail.conclude(outcomes(1)[0], within=1.0)
    assert caught.value.reason is Reason.AUDIT_UNAVAILABLE
    await away.dispose()


async def test_the_outbox_reports_its_status(replica: MakeReplica, engines: tuple[AsyncEngine, AsyncEngine]) -> None:
    one = await replica(NOWHERE)
    assert await one.outbox._rows.status() == (0, 0.0, 0)
    await conclude_all(one, outcomes(2))
    status = await one.outbox._rows.status()
    assert (status.waiting, status.refused) == (2, 0)
    assert status.oldest_seconds >= 0
