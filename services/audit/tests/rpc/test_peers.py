"""Several writers at once: what one of them does, leaves undone or does wrong never holds up another."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from toolmesh.audit.v1 import audit_service_pb2 as pb

from libs.common.errors import Reason
from services.audit.tests.replicas import Replica, Start, answer, append, reason_of
from services.audit.tests.sample import a_record, stamp

BATCHES = 40


def batches(count: int, size: int = 3, **changes: Any) -> list[list[Any]]:
    return [[a_record(**changes) for _ in range(size)] for _ in range(count)]


async def test_a_stopped_peer_does_not_block_others(audit: Replica) -> None:
    """It has opened its stream and sent a batch; it neither sends the next nor reads the answer."""
    silent = audit.stub("registry").AppendRecords()
    await silent.write(pb.AppendRecordsRequest(batch=1, records=[a_record()]))
    acknowledged = await append(audit.stub("executor"), batches(BATCHES))
    assert [a.batch for a in acknowledged] == list(range(1, BATCHES + 1))
    # What it sent is as durable as any other record, and waits for it.
    assert (await answer(silent)).batch == 1
    silent.cancel()


async def test_peers_whose_records_arrive_in_another_order_than_they_happened(audit: Replica) -> None:
    """One peer is an hour behind and sends the newest first; the other is on time. Each keeps its own order."""
    begin = datetime.now(UTC) - timedelta(hours=1)
    late = [[a_record(event_time=stamp(begin - timedelta(minutes=n)), trace_id="late")] for n in range(BATCHES)]
    prompt = batches(BATCHES, 1, trace_id="prompt")
    await asyncio.gather(append(audit.stub("approval"), late), append(audit.stub("executor"), prompt))
    places = {record_id: sequence for sequence, record_id, _, _ in audit.stored()}
    assert sorted(places.values()) == list(range(2 * BATCHES))
    for sent in (late, prompt):
        found = [places[record.record_id] for batch in sent for record in batch]
        assert found == sorted(found)


async def test_a_peer_that_sends_a_later_batch_before_an_earlier_one_loses_neither(start: Start) -> None:
    """After a cut it does not know what arrived: it sends the newest to one replica and then all of it to another."""
    one, other = await start(), await start()
    sent = batches(BATCHES)
    await append(one.stub("executor"), sent[BATCHES // 2 :])
    busy = asyncio.ensure_future(append(one.stub("registry"), batches(BATCHES)))
    await append(other.stub("executor"), sent)
    await busy
    stored = [record_id for _, record_id, _, _ in one.stored()]
    assert len(stored) == len(set(stored)) == 2 * BATCHES * 3
    assert {record.record_id for batch in sent for record in batch} <= set(stored)


async def test_a_peer_whose_batch_is_refused_ends_alone(audit: Replica) -> None:
    writing = asyncio.ensure_future(append(audit.stub("executor"), batches(BATCHES)))
    broken = audit.stub("registry").AppendRecords()
    await broken.write(pb.AppendRecordsRequest(batch=1, records=[a_record(arguments_summary=b"{broken")]))
    assert await reason_of(answer(broken)) is Reason.AUDIT_RECORD_INVALID
    assert len(await writing) == BATCHES


async def test_peers_that_share_one_commit_are_answered_each_for_its_own(audit: Replica) -> None:
    """All at once, so that commits are shared; every stream counts its own batches and gets its own places."""
    peers = ("executor", "registry", "approval", "authz", "gateway", "executor")
    sent = [batches(10, size) for size in range(1, len(peers) + 1)]
    answers = await asyncio.gather(*(append(audit.stub(p), b) for p, b in zip(peers, sent, strict=True)))
    places = {record_id: sequence for sequence, record_id, _, _ in audit.stored()}
    for own, acknowledged in zip(sent, answers, strict=True):
        assert [a.batch for a in acknowledged] == list(range(1, 11))
        assert [a.last_sequence for a in acknowledged] == [places[batch[-1].record_id] for batch in own]
