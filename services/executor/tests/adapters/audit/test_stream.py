"""The audit stream: batches, broken streams, late acknowledgements, and no lost records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest

from libs.common.errors import MeshError, Reason
from libs.common.runtime.settings import Address
from libs.common.telemetry.log import Log
from services.executor.adapters.audit.record_encoder import RecordEncoder
from services.executor.adapters.audit.stream import RECORD_BYTES, AuditStream
from services.executor.domain.model import PayloadDigest
from services.executor.tests.peers import AuditPeer, serving
from services.executor.tests.samples import a_record
from services.executor.tests.waiting import until

OpenStream = Callable[..., Any]


@pytest.fixture
async def opened(reach: Callable[..., Any], quiet: Log) -> AsyncIterator[OpenStream]:
    """Return a factory of started streams: `await opened(address, active=...)`."""
    streams: list[AuditStream] = []

    async def start(address: Address, *, active: int = 1, **changes: Any) -> AuditStream:
        channel = await reach("audit", address)
        stream = AuditStream(channel, RecordEncoder("e-0"), quiet, active=lambda: active, **changes)
        await stream.start()
        streams.append(stream)
        return stream

    yield start
    for stream in streams:
        await stream.stop()


async def failure(waiting: Any) -> MeshError:
    with pytest.raises(MeshError) as caught:
        await waiting
    return caught.value


async def test_a_record_is_durable_when_append_returns(opened: OpenStream, audit: AuditPeer) -> None:
    stream = await opened(audit.address)
    record = a_record()
    await stream.append(record, within=10)
    assert audit.ids == [record.record_id]
    assert stream.waiting == 0


async def test_records_queued_during_a_batch_share_the_next(opened: OpenStream, audit: AuditPeer) -> None:
    stream = await opened(audit.address)
    audit.acknowledging.clear()
    first = asyncio.ensure_future(stream.append(a_record(), within=10))
    await audit.arrived.wait()
    others = [asyncio.ensure_future(stream.append(a_record(), within=10)) for _ in range(30)]
    await asyncio.sleep(0)
    audit.acknowledging.set()
    await asyncio.gather(first, *others)
    assert audit.batches == [1, 30]


async def test_with_many_active_calls_a_batch_waits_for_more_records(opened: OpenStream, audit: AuditPeer) -> None:
    stream = await opened(audit.address, active=16)
    await stream.append(a_record(), within=10)

    async def a_moment_later(n: int) -> None:
        for _ in range(n):
            await asyncio.sleep(0)
        await stream.append(a_record(), within=10)

    await asyncio.gather(*(a_moment_later(n) for n in range(10)))
    assert audit.batches == [1, 10]


async def test_with_few_active_calls_a_batch_is_sent_at_once(opened: OpenStream, audit: AuditPeer) -> None:
    stream = await opened(audit.address, active=1)
    await stream.append(a_record(), within=10)
    assert audit.batches == [1]


async def test_a_batch_is_bounded(opened: OpenStream, audit: AuditPeer) -> None:
    stream = await opened(audit.address, active=9)
    await asyncio.gather(*(stream.append(a_record(), within=20) for _ in range(1200)))
    assert sum(audit.batches) == 1200
    assert max(audit.batches) <= 500


async def test_records_arrive_in_order(opened: OpenStream, audit: AuditPeer) -> None:
    stream = await opened(audit.address)
    records = [a_record() for _ in range(50)]
    await asyncio.gather(*(stream.append(record, within=10) for record in records))
    assert audit.ids == [record.record_id for record in records]


async def test_a_waiter_times_out_and_its_record_stays_queued(opened: OpenStream, audit: AuditPeer) -> None:
    stream = await opened(audit.address)
    audit.acknowledging.clear()
    sent, queued = a_record(), a_record()
    waiting = [asyncio.ensure_future(stream.append(record, within=0.05)) for record in (sent, queued)]
    for waiter in waiting:
        assert (await failure(waiter)).reason is Reason.AUDIT_UNAVAILABLE
    assert stream.waiting == 2
    audit.acknowledging.set()
    await until(lambda: stream.waiting == 0)
    assert audit.ids == [sent.record_id, queued.record_id]


async def test_a_canceled_waiter_does_not_affect_the_others(opened: OpenStream, audit: AuditPeer) -> None:
    stream = await opened(audit.address)
    audit.acknowledging.clear()
    records = [a_record() for _ in range(3)]
    waiting = [asyncio.ensure_future(stream.append(record, within=10)) for record in records]
    await audit.arrived.wait()
    waiting[0].cancel()
    waiting[1].cancel()
    audit.acknowledging.set()
    await waiting[2]
    assert audit.ids == [record.record_id for record in records]


async def test_a_stream_that_breaks_before_the_acknowledgement_is_resent_and_stored_once(
    opened: OpenStream, audit: AuditPeer
) -> None:
    audit.breaks_before_ack = 2
    stream = await opened(audit.address)
    records = [a_record() for _ in range(5)]
    await asyncio.gather(*(stream.append(record, within=20) for record in records))
    assert audit.streams == 3
    assert audit.ids == [record.record_id for record in records]


async def test_a_log_that_dies_and_comes_back_gets_everything(pki: Any, opened: OpenStream) -> None:
    log = AuditPeer()  # type: ignore[abstract]
    async with serving(pki, "audit", log.add) as address:
        stream = await opened(address)
        first = a_record()
        await stream.append(first, within=10)
    second = a_record()
    assert (await failure(stream.append(second, within=0.05))).reason is Reason.AUDIT_UNAVAILABLE
    third = a_record()
    waiting = asyncio.ensure_future(stream.append(third, within=30))
    async with serving(pki, "audit", log.add, port=address.port):
        await waiting
        await stream.stop()
    assert log.ids == [first.record_id, second.record_id, third.record_id]


async def test_an_overdue_acknowledgement_reopens_the_stream_and_resends(opened: OpenStream, audit: AuditPeer) -> None:
    audit.acknowledging.clear()
    stream = await opened(audit.address, ack_seconds=0.05)
    record = a_record()
    waiting = asyncio.ensure_future(stream.append(record, within=20))
    await until(lambda: audit.streams >= 2)
    audit.acknowledging.set()
    await waiting
    assert audit.ids == [record.record_id]


@pytest.mark.parametrize("per_record", [True, False], ids=["answered per record", "stream ended"])
async def test_a_refused_record_does_not_block_the_others(
    opened: OpenStream, audit: AuditPeer, per_record: bool
) -> None:
    audit.answers_per_record = per_record
    stream = await opened(audit.address, active=9)
    records = [a_record() for _ in range(6)]
    audit.refused = {records[3].record_id}
    outcomes = await asyncio.gather(*(stream.append(r, within=20) for r in records), return_exceptions=True)
    assert [isinstance(outcome, MeshError) for outcome in outcomes] == [False, False, False, True, False, False]
    refused = outcomes[3]
    assert isinstance(refused, MeshError)
    assert refused.reason is Reason.AUDIT_RECORD_INVALID
    assert audit.ids == [record.record_id for record in records if record is not records[3]]


async def test_a_refused_record_does_not_end_the_stream(opened: OpenStream, audit: AuditPeer) -> None:
    stream = await opened(audit.address, active=9)
    refused, other = a_record(), a_record()
    audit.refused = {refused.record_id}
    for _ in range(3):
        outcomes = await asyncio.gather(
            stream.append(refused, within=20), stream.append(other, within=20), return_exceptions=True
        )
        assert [isinstance(outcome, MeshError) for outcome in outcomes] == [True, False]
    assert audit.streams == 1


@pytest.mark.parametrize("per_record", [True, False], ids=["answered per record", "stream ended"])
async def test_a_refused_outcome_is_stored_in_its_reduced_form(
    opened: OpenStream, audit: AuditPeer, per_record: bool
) -> None:
    audit.answers_per_record = per_record
    audit.refuses = lambda record: bool(record.result_summary)
    stream = await opened(audit.address, active=9)
    poisoned = [a_record(follows="d", result=PayloadDigest(f"sha256:{n}", b"1")) for n in range(3)]
    good = [a_record() for _ in range(3)]
    pending = [stream.enqueue(record) for pair in zip(poisoned, good, strict=True) for record in pair]
    await asyncio.gather(*(stream.wait_confirmed(each, within=20) for each in pending))
    stored = {record.record_id: record for record in audit.records}
    assert set(stored) == {record.record_id for record in (*poisoned, *good)}
    for record in poisoned:
        assert record.result is not None
        assert stored[record.record_id].reduced_reason
        assert stored[record.record_id].result_digest == record.result.digest
    assert not any(stored[record.record_id].reduced_reason for record in good)


async def test_a_refused_decision_is_not_reduced(opened: OpenStream, audit: AuditPeer) -> None:
    audit.refuses = lambda record: bool(record.arguments_summary)
    stream = await opened(audit.address)
    poisoned = a_record(arguments=PayloadDigest("sha256:a", b"1"))
    assert (await failure(stream.append(poisoned, within=20))).reason is Reason.AUDIT_RECORD_INVALID
    assert audit.ids == []


async def test_an_unawaited_record_is_reduced_too(opened: OpenStream, audit: AuditPeer) -> None:
    audit.refuses = lambda record: bool(record.arguments_summary)
    stream = await opened(audit.address)
    stream.enqueue_unawaited(a_record(arguments=PayloadDigest("sha256:a", b"1")))
    await until(lambda: stream.waiting == 0)
    assert [bool(record.reduced_reason) for record in audit.records] == [True]


async def test_a_full_queue_refuses_new_calls_and_accepts_outcomes(opened: OpenStream, audit: AuditPeer) -> None:
    audit.acknowledging.clear()
    stream = await opened(audit.address, capacity=2)
    decisions = [asyncio.ensure_future(stream.append(a_record(), within=20)) for _ in range(2)]
    await asyncio.sleep(0)
    assert (await failure(stream.append(a_record(), within=20))).reason is Reason.AUDIT_BACKPRESSURE
    ends = [asyncio.ensure_future(stream.append(a_record(follows="decision-1"), within=20)) for _ in range(2)]
    await asyncio.sleep(0)
    assert (await failure(stream.append(a_record(follows="d"), within=20))).reason is Reason.AUDIT_BACKPRESSURE
    stream.enqueue_unawaited(a_record(follows="d"))
    assert stream.waiting == 4
    audit.acknowledging.set()
    await asyncio.gather(*decisions, *ends)


async def test_a_log_that_reports_backpressure_causes_backpressure_errors(opened: OpenStream, audit: AuditPeer) -> None:
    audit.breaks_before_ack, audit.breaks_with = 1000, Reason.AUDIT_BACKPRESSURE
    stream = await opened(audit.address)
    assert (await failure(stream.append(a_record(), within=0.5))).reason is Reason.AUDIT_BACKPRESSURE
    audit.breaks_before_ack = 0
    await stream.append(a_record(), within=20)
    audit.acknowledging.clear()
    assert (await failure(stream.append(a_record(), within=0.05))).reason is Reason.AUDIT_UNAVAILABLE


async def test_only_a_backlog_is_compressed(opened: OpenStream, audit: AuditPeer) -> None:
    stream = await opened(audit.address)
    asked: list[grpc.Compression] = []
    opening = stream._open

    def listening(*, compression: grpc.Compression) -> Any:
        asked.append(compression)
        return opening(compression=compression)

    stream._open = listening
    audit.acknowledging.clear()
    first = asyncio.ensure_future(stream.append(a_record(), within=20))
    await audit.arrived.wait()
    summary = PayloadDigest("sha256:a", b'{"text":"%s"}' % (b"x" * 3000))
    backlog = [asyncio.ensure_future(stream.append(a_record(arguments=summary), within=20)) for _ in range(100)]
    await asyncio.sleep(0)
    audit.acknowledging.set()
    await asyncio.gather(first, *backlog)
    await stream.append(a_record(), within=20)
    assert [compression is grpc.Compression.Gzip for compression in asked] == [False, True, False]
    assert len(audit.ids) == len(set(audit.ids)) == 102


async def test_a_record_that_is_too_large_is_refused_before_it_is_sent(opened: OpenStream, audit: AuditPeer) -> None:
    stream = await opened(audit.address)
    huge = a_record(arguments=PayloadDigest("sha256:a", b"x" * (RECORD_BYTES + 1)))
    assert (await failure(stream.append(huge, within=10))).reason is Reason.AUDIT_RECORD_INVALID
    assert stream.waiting == 0


async def test_an_outcome_that_is_too_large_is_sent_in_its_reduced_form(opened: OpenStream, audit: AuditPeer) -> None:
    stream = await opened(audit.address)
    text = b'"%s"' % (b"x" * RECORD_BYTES)
    huge = a_record(follows="d", arguments=PayloadDigest("sha256:a", text))
    await stream.wait_confirmed(stream.enqueue(huge), within=10)
    encoded = RecordEncoder("e-0").encode(huge)
    [waiter] = stream.enqueue_encoded([(huge.record_id, encoded)])
    await waiter
    assert [(record.reduced_reason, record.arguments_digest) for record in audit.records] == [
        ("record.max_bytes", "sha256:a")
    ]


async def test_an_unawaited_record_arrives(opened: OpenStream, audit: AuditPeer) -> None:
    stream = await opened(audit.address)
    record = a_record()
    stream.enqueue_unawaited(record)
    await until(lambda: audit.ids == [record.record_id])


async def test_stop_flushes_the_queue(opened: OpenStream, audit: AuditPeer) -> None:
    stream = await opened(audit.address, active=9)
    records = [a_record() for _ in range(3)]
    for record in records:
        stream.enqueue_unawaited(record)
    await stream.stop()
    assert audit.ids == [record.record_id for record in records]


async def test_stop_returns_without_a_log(opened: OpenStream) -> None:
    stream = await opened(Address("127.0.0.1", 1))
    stream.enqueue_unawaited(a_record())
    await asyncio.wait_for(stream.stop(), 60)
    assert stream.waiting == 1
