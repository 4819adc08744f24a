"""ExportRecords through the service. tests/evidence checks the proofs with the verifier."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import grpc.aio
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.audit.v1 import audit_service_pb2 as pb
from toolmesh.audit.v1 import log_service_pb2 as log_pb

from libs.common.errors import MeshError, Reason
from libs.common.rpc.status import from_rpc_error
from services.audit.domain.export.export_records import ExportRecords, ExportRequest
from services.audit.tests.replicas import Replica
from services.audit.tests.sample import a_record, stamp

BEGIN = datetime(2026, 11, 15, 8, tzinfo=UTC)


async def exported(audit: Replica, **request: Any) -> list[Any]:
    """Return all messages of an export, or raise its mesh error."""
    try:
        call = audit.stub("operator").ExportRecords(pb.ExportRecordsRequest(**request))
        return [message async for message in call]
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error


def sequences(messages: list[Any]) -> list[int]:
    return [record.sequence for message in messages for record in message.records.records]


def a_range(first: int, end: int = 0) -> pb.SequenceRange:
    return pb.SequenceRange(first_sequence=first, end_sequence=end)


@pytest.fixture
async def filled(audit: Replica) -> Replica:
    """A log of 700 records, one of each second."""
    for part in range(0, 700, 350):
        await audit.append(*(a_record(event_time=stamp(BEGIN + timedelta(seconds=part + n))) for n in range(350)))
    return audit


async def test_a_header_comes_first_then_all_records_in_pages_and_a_proof_last(filled: Replica) -> None:
    messages = await exported(filled, shard=0)
    header = messages[0].header
    assert (header.first_sequence, header.end_sequence, header.checkpoint.tree_size) == (0, 700, 700)
    assert header.verifier_key.startswith(header.shard.origin.rpartition("/")[0] + "+")
    assert [message.WhichOneof("part") for message in messages].count("header") == 1
    assert messages[-1].WhichOneof("part") == "proof"
    assert sequences(messages) == list(range(700))
    assert sum(message.WhichOneof("part") == "records" for message in messages) > 1
    stored = {row[0]: (row[2], row[3]) for row in filled.stored()}
    for message in messages:
        for record in message.records.records:
            assert (record.canonical_json, record.leaf_hash) == stored[record.sequence]
            assert not record.HasField("record"), "said once, in the bytes that are hashed"


async def test_a_range_is_exported_as_far_as_the_log_goes(filled: Replica) -> None:
    for first, end, expected in ((10, 20, (10, 20)), (690, 0, (690, 700)), (690, 9999, (690, 700))):
        messages = await exported(filled, range=a_range(first, end))
        assert (messages[0].header.first_sequence, messages[0].header.end_sequence) == expected
        assert sequences(messages) == list(range(*expected))


async def test_times_narrow_to_what_lies_between_the_first_and_the_last(filled: Replica) -> None:
    messages = await exported(
        filled, shard=0, from_time=stamp(BEGIN + timedelta(seconds=100)), to_time=stamp(BEGIN + timedelta(seconds=110))
    )
    assert sequences(messages) == list(range(100, 110))


async def test_an_export_goes_on_from_a_sequence_with_the_proof_of_all_of_it(filled: Replica) -> None:
    whole = await exported(filled, range=a_range(100, 650))
    rest = await exported(filled, range=a_range(100, 650), resume_sequence=600)
    assert sequences(rest) == list(range(600, 650))
    assert (rest[0].header.first_sequence, rest[-1].proof) == (100, whole[-1].proof)
    assert sequences(await exported(filled, range=a_range(100, 650), resume_sequence=650)) == []


async def test_erasure_evidence_precedes_its_page(filled: Replica) -> None:
    for sequence in (3, 650):
        await filled.log().ErasePayload(log_pb.ErasePayloadRequest(sequence=sequence, reason="asked for"))
    parts = await exported(filled, range=a_range(0, 700))
    kinds = [part.WhichOneof("part") for part in parts if part.WhichOneof("part") in ("erasure", "records")]
    assert kinds == ["erasure", "records", "erasure", "records"]
    assert [part.erasure.sequence for part in parts if part.HasField("erasure")] == [3, 650]


async def test_a_known_size_brings_the_proof_that_it_is_continued(filled: Replica) -> None:
    assert (await exported(filled, range=a_range(0, 1), known_size=300))[-1].proof.known_hashes
    assert not (await exported(filled, range=a_range(0, 1), known_size=9999))[-1].proof.known_hashes


async def test_invalid_export_requests_are_refused(filled: Replica) -> None:
    for request, reason in (
        ({"shard": 7}, Reason.NOT_FOUND),
        ({"range": a_range(700)}, Reason.NOT_FOUND),
        ({"range": a_range(20, 20)}, Reason.NOT_FOUND),
        ({"shard": 0, "from_time": stamp(BEGIN + timedelta(days=9))}, Reason.NOT_FOUND),
        ({"shard": 0, "to_time": Timestamp(seconds=10**12)}, Reason.INVALID_REQUEST),
        ({}, Reason.INVALID_REQUEST),
        ({"range": a_range(-1)}, Reason.INVALID_REQUEST),
    ):
        with pytest.raises(MeshError) as caught:
            await exported(filled, **request)
        assert caught.value.reason is reason, request


async def test_a_shard_whose_records_were_dropped_is_in_its_archive() -> None:
    class Shards:
        async def get(self, number: int) -> Any:
            return SimpleNamespace(number=number, drop_time=BEGIN)

    export = ExportRecords(*([None, Shards()] + [None] * 3))  # type: ignore[arg-type, list-item]
    with pytest.raises(MeshError) as caught:
        _ = [part async for part in export.stream(ExportRequest(shard=0))]
    assert caught.value.reason is Reason.FAILED_PRECONDITION
