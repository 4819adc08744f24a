"""The service as its peers see it: real mutual TLS, a real database."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable
from typing import Any

import orjson
import pytest
from toolmesh.audit.v1 import audit_record_pb2 as record_pb
from toolmesh.audit.v1 import audit_service_pb2 as pb
from toolmesh.common.v1 import caller_pb2

from libs.common.errors import MeshError, Reason
from services.audit.convert.audit import entry_of
from services.audit.tests.database import check_log, head_locked, kill_writers, sql, writer_waits
from services.audit.tests.replicas import Replica, Start, answer, append, reason_of, reply
from services.audit.tests.sample import a_record
from tests.harness.stores import wait_until


async def test_batches_are_acknowledged_in_order_with_their_last_sequence(audit: Replica) -> None:
    batches = [[a_record(), a_record()], [a_record()], [a_record() for _ in range(5)]]
    acknowledged = await append(audit.stub("executor"), batches)
    assert [(a.batch, a.last_sequence) for a in acknowledged] == [(1, 1), (2, 2), (3, 7)]
    assert [row[1] for row in audit.stored()] == [r.record_id for batch in batches for r in batch]


async def test_the_writer_is_the_peer_whatever_the_record_claims(audit: Replica) -> None:
    await append(audit.stub("approval"), [[a_record(writer="executor")]])
    [row] = audit.stored()
    assert orjson.loads(row[2])["writer"] == "approval"


@pytest.mark.parametrize("peer", ["operator", "edge", "orchestrator"])
async def test_only_services_may_append(audit: Replica, peer: str) -> None:
    call = audit.stub(peer).AppendRecords()
    await call.write(pb.AppendRecordsRequest(batch=1, records=[a_record()]))
    assert await reason_of(answer(call)) is Reason.PEER_NOT_ALLOWED
    assert audit.stored() == []


async def test_a_record_without_a_form_ends_the_stream_and_nothing_of_its_batch_is_stored(audit: Replica) -> None:
    call = audit.stub("executor").AppendRecords()
    await call.write(pb.AppendRecordsRequest(batch=1, records=[a_record()]))
    await answer(call)
    bad = a_record(result_summary=b"{not json")
    await call.write(pb.AppendRecordsRequest(batch=2, records=[a_record(), bad, a_record()]))
    with pytest.raises(MeshError) as caught:
        await answer(call)
    assert caught.value.reason is Reason.AUDIT_RECORD_INVALID
    assert caught.value.metadata["record_id"] == bad.record_id
    assert [violation.path for violation in caught.value.violations] == ["records[1].result_summary"]
    check_log(audit.url, 1)


async def test_with_partial_success_a_refused_record_costs_neither_its_batch_nor_the_stream(audit: Replica) -> None:
    known, bad = a_record(), a_record(result_summary=b"{not json")
    taken = a_record(record_id=known.record_id)
    await audit.append(known)
    call = audit.stub("executor").AppendRecords()
    batches = [[a_record(), bad, taken, a_record()], [bad, taken], [a_record()]]
    answers = []
    for number, records in enumerate(batches, start=1):
        await call.write(pb.AppendRecordsRequest(batch=number, records=records, return_partial_success=True))
        answers.append(await answer(call))
    assert [each.last_sequence for each in answers] == [2, -1, 3]
    refusals = [[(r.index, r.record_id, r.path, r.rule) for r in each.refused] for each in answers]
    invalid = (bad.record_id, "result_summary", "invalid_json")
    repeated = (known.record_id, "record_id", "record_id.taken")
    assert refusals == [[(1, *invalid), (2, *repeated)], [(0, *invalid), (1, *repeated)], []]
    check_log(audit.url, 4)


async def test_canonical_forms_are_refused_one_by_one_too(audit: Replica) -> None:
    forms = [entry_of(a_record(), "executor").canonical for _ in range(4)]
    forms[1:3] = [b"{not json", forms[2].replace(b'"writer":"executor"', b'"writer":"gateway"')]
    call = audit.stub("executor").AppendRecords()
    await call.write(pb.AppendRecordsRequest(batch=1, canonical_records=forms, return_partial_success=True))
    acknowledged = await answer(call)
    assert [(r.index, r.path, r.rule) for r in acknowledged.refused] == [
        (1, "", "record.json"),
        (2, "writer", "record.writer"),
    ]
    assert [row[2] for row in audit.stored()] == [forms[0], forms[3]]


async def test_of_two_records_with_one_id_in_a_batch_the_first_is_stored(audit: Replica) -> None:
    first = a_record()
    second, other = a_record(record_id=first.record_id), a_record()
    call = audit.stub("executor").AppendRecords()
    batch = [first, second, first, other]
    await call.write(pb.AppendRecordsRequest(batch=1, records=batch, return_partial_success=True))
    acknowledged = await answer(call)
    assert [refusal.index for refusal in acknowledged.refused] == [1]
    assert [row[1] for row in audit.stored()] == [first.record_id, other.record_id]


@pytest.mark.parametrize("numbers", [[2], [1, 1], [1, 3], [1, 2, 1]])
async def test_a_batch_out_of_turn_ends_its_stream_and_no_other(audit: Replica, numbers: list[int]) -> None:
    stub = audit.stub("executor")
    other, call = stub.AppendRecords(), stub.AppendRecords()
    await other.write(pb.AppendRecordsRequest(batch=1, records=[a_record()]))
    await answer(other)
    for number in numbers[:-1]:
        await call.write(pb.AppendRecordsRequest(batch=number, records=[a_record()]))
        await answer(call)
    before = len(audit.stored())
    await call.write(pb.AppendRecordsRequest(batch=numbers[-1], records=[a_record()]))
    with pytest.raises(MeshError) as caught:
        await answer(call)
    assert (caught.value.reason, caught.value.metadata["expected"]) == (Reason.INVALID_REQUEST, str(len(numbers)))
    assert [violation.path for violation in caught.value.violations] == ["batch"]
    assert len(audit.stored()) == before
    await other.write(pb.AppendRecordsRequest(batch=2, records=[a_record()]))
    assert (await answer(other)).last_sequence == before


@pytest.mark.parametrize("kind", ["SHARD_OPENED", "PAYLOAD_ERASED", "HOLD_PLACED", "HOLD_RELEASED", "SHARD_ARCHIVED"])
async def test_event_classes_of_the_log_itself_are_refused(audit: Replica, kind: str) -> None:
    forged = a_record(event_class=record_pb.EventClass.Value(f"EVENT_CLASS_{kind}"), writer="audit")
    for peer in ("executor", "audit"):
        call = audit.stub(peer).AppendRecords()
        await call.write(pb.AppendRecordsRequest(batch=1, records=[a_record(), forged]))
        assert await reason_of(answer(call)) is Reason.AUDIT_RECORD_INVALID
    assert audit.stored() == []


async def test_a_batch_sent_again_is_acknowledged_again_and_stored_once(audit: Replica) -> None:
    batch = [a_record(), a_record()]
    [first] = await append(audit.stub("executor"), [batch])
    again = await append(audit.stub("executor"), [batch, [*batch, a_record()]])
    assert [first.last_sequence, *(a.last_sequence for a in again)] == [1, 1, 2]
    check_log(audit.url, 3)


async def test_another_record_with_a_known_id_ends_its_stream_and_nothing_of_its_batch_is_stored(
    audit: Replica,
) -> None:
    known = a_record()
    other, call = audit.stub("executor").AppendRecords(), audit.stub("executor").AppendRecords()
    await audit.append(known)
    await call.write(pb.AppendRecordsRequest(batch=1, records=[a_record(), a_record(record_id=known.record_id)]))
    await other.write(pb.AppendRecordsRequest(batch=1, records=[a_record()]))
    with pytest.raises(MeshError) as caught:
        await answer(call)
    assert caught.value.reason is Reason.AUDIT_RECORD_INVALID
    assert caught.value.metadata["record_id"] == known.record_id
    assert [(each.path, each.rule) for each in caught.value.violations] == [("record_id", "record_id.taken")]
    assert (await answer(other)).last_sequence == 1
    check_log(audit.url, 2)


async def test_a_record_of_another_peer_is_another_record(audit: Replica) -> None:
    record = a_record()
    await audit.append(record)
    call = audit.stub("registry").AppendRecords()
    await call.write(pb.AppendRecordsRequest(batch=1, records=[record]))
    assert await reason_of(answer(call)) is Reason.AUDIT_RECORD_INVALID
    check_log(audit.url, 1)


async def test_the_same_batch_on_several_streams_at_once_is_stored_once(audit: Replica) -> None:
    batch = [a_record() for _ in range(20)]
    stub = audit.stub("executor")
    acknowledged = await asyncio.gather(*(append(stub, [batch]) for _ in range(6)))
    assert {a.last_sequence for [a] in acknowledged} == {19}
    check_log(audit.url, 20)


async def test_no_acknowledgement_before_durability_and_a_typed_failure_without_it(audit: Replica) -> None:
    batch = [a_record(), a_record()]
    call = audit.stub("executor").AppendRecords()
    with head_locked(audit.url):
        await call.write(pb.AppendRecordsRequest(batch=1, records=batch))
        reading = asyncio.ensure_future(answer(call))
        await asyncio.to_thread(wait_until, lambda: writer_waits(audit.url), "the commit's wait for the head")
        assert not reading.done()
        kill_writers(audit.url)
        assert await reason_of(reading) is Reason.AUDIT_UNAVAILABLE
    assert audit.stored() == []
    assert await audit.append(*batch) == 1
    check_log(audit.url, 2)


async def test_many_writers_share_one_dense_log(audit: Replica) -> None:
    async def write() -> list[str]:
        batches = [[a_record() for _ in range(10)] for _ in range(20)]
        await append(audit.stub("executor"), batches)
        return [record.record_id for batch in batches for record in batch]

    sent = await asyncio.gather(*(write() for _ in range(8)))
    stored = check_log(audit.url, 1600)
    assert sorted(stored) == sorted(record_id for ids in sent for record_id in ids)
    for ids in sent:
        assert sorted(ids, key=stored.index) == ids


async def test_replicas_append_at_the_same_time_to_one_log(start: Start) -> None:
    replicas = [await start(), await start()]
    shared = [a_record() for _ in range(10)]

    async def write(replica: Replica) -> None:
        batches = [[a_record(), shared[place % 10], a_record()] for place in range(30)]
        await append(replica.stub("executor"), batches)

    await asyncio.gather(*(write(replica) for replica in replicas for _ in range(3)))
    check_log(replicas[0].url, 6 * 60 + 10)


async def test_get_record_finds_a_record_by_sequence_and_by_id(audit: Replica) -> None:
    record = a_record(caller=caller_pb2.Caller(subject="did:web:a"))
    await audit.append(a_record(), record)
    operator = audit.stub("operator")
    by_id = (await reply(operator.GetRecord(pb.GetRecordRequest(name=f"records/{record.record_id}")))).record
    by_place = (await reply(operator.GetRecord(pb.GetRecordRequest(name=by_id.name)))).record
    assert by_place == by_id
    assert (by_id.sequence, by_id.record.caller) == (1, record.caller)
    assert by_id.leaf_hash == hashlib.sha256(b"\x00" + by_id.canonical_json).digest()
    assert by_id.canonical_json == audit.stored()[1][2]
    assert by_id.log_time.seconds > 0


@pytest.mark.parametrize("name", ["records/no-such-record", "logs/{log}/records/7", "logs/other/records/0"])
async def test_a_record_that_is_not_there_is_not_found(audit: Replica, name: str) -> None:
    await audit.append(a_record())
    [(log_id,)] = sql(audit.url, "select log_id from tree_head")
    for asked in (name.format(log=log_id), f"logs/{log_id}/records/{'9' * 60}"):
        request = pb.GetRecordRequest(name=asked)
        assert await reason_of(reply(audit.stub("operator").GetRecord(request))) is Reason.NOT_FOUND


def questions(stub: Any, metadata: Any = ()) -> list[Awaitable[Any]]:
    """Return one call of each reading method."""
    return [
        reply(stub.GetRecord(pb.GetRecordRequest(name="records/abcdefgh"), metadata=metadata)),
        reply(stub.QueryRecords(pb.QueryRecordsRequest(), metadata=metadata)),
        reply(stub.GetCheckpoint(pb.GetCheckpointRequest(), metadata=metadata)),
        answer(stub.WatchRecords(pb.WatchRecordsRequest(), metadata=metadata)),
    ]


@pytest.mark.parametrize("peer", ["executor", "registry"])
async def test_services_write_the_log_and_do_not_read_it(audit: Replica, peer: str) -> None:
    assert {await reason_of(call) for call in questions(audit.stub(peer))} == {Reason.PEER_NOT_ALLOWED}


@pytest.mark.parametrize("peer", ["edge", "gateway", "orchestrator"])
async def test_a_caller_reads_with_the_scope_and_not_without(audit: Replica, signer: Any, peer: str) -> None:
    stub = audit.stub(peer)

    def bearer(scope: str) -> Any:
        return (("authorization", f"Bearer {signer.mint(scope=scope)}"),)

    assert {await reason_of(call) for call in questions(stub)} == {Reason.UNAUTHENTICATED}
    denied = questions(stub, bearer("tools:read"))
    assert {await reason_of(call) for call in denied} == {Reason.SCOPE_MISSING}
    await reply(stub.QueryRecords(pb.QueryRecordsRequest(), metadata=bearer("audit:read")))
