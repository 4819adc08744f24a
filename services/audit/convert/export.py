"""Converts requests and parts of an export."""

from __future__ import annotations

from toolmesh.audit.v1 import audit_record_pb2 as record_pb
from toolmesh.audit.v1 import audit_service_pb2 as pb

from services.audit.convert.audit import checkpoint_message, filter_of, to_timestamp
from services.audit.convert.log import shard_message
from services.audit.domain.export.export_records import (
    ErasureEvidence,
    ExportHeader,
    ExportPart,
    ExportProof,
    ExportRequest,
)
from services.audit.domain.merkle.note import Origin
from services.audit.domain.model import LoggedRecord, SignedCheckpoint


def export_request(request: pb.ExportRecordsRequest) -> ExportRequest:
    """Return the export that a request describes; a time outside the calendar raises INVALID_REQUEST."""
    times = pb.RecordFilter(
        from_time=request.from_time if request.HasField("from_time") else None,
        to_time=request.to_time if request.HasField("to_time") else None,
    )
    return ExportRequest(
        shard=request.shard if request.WhichOneof("part") == "shard" else None,
        first=request.range.first_sequence,
        end=request.range.end_sequence,
        times=filter_of(times),
        resume=request.resume_sequence,
        known_size=request.known_size,
    )


def part_message(part: ExportPart, origin: Origin) -> pb.ExportRecordsResponse:
    """Return a part of an export as a message."""
    if isinstance(part, ExportHeader):
        return pb.ExportRecordsResponse(header=_header(part, origin))
    if isinstance(part, SignedCheckpoint):
        return pb.ExportRecordsResponse(checkpoint=checkpoint_message(part))
    if isinstance(part, ErasureEvidence):
        return pb.ExportRecordsResponse(erasure=_explanation(part))
    if isinstance(part, ExportProof):
        return pb.ExportRecordsResponse(proof=_proof(part))
    return pb.ExportRecordsResponse(records=pb.ExportedRecords(records=[_exported(record) for record in part]))


def _header(header: ExportHeader, origin: Origin) -> pb.ExportHeader:
    return pb.ExportHeader(
        shard=shard_message(header.shard, origin),
        first_sequence=header.first,
        end_sequence=header.end,
        checkpoint=checkpoint_message(header.checkpoint),
        verifier_key=header.verifier_key,
    )


def _exported(logged: LoggedRecord) -> record_pb.LoggedRecord:
    return record_pb.LoggedRecord(
        name=f"logs/{logged.log_id}/records/{logged.sequence}",
        sequence=logged.sequence,
        canonical_json=logged.canonical,
        leaf_hash=logged.leaf_hash,
        log_time=to_timestamp(logged.log_time),
        shard=logged.shard,
        erased_by=logged.erased_by or 0,
    )


def _explanation(evidence: ErasureEvidence) -> pb.ErasureEvidence:
    return pb.ErasureEvidence(
        sequence=evidence.sequence,
        record=_exported(evidence.record),
        hashes=evidence.hashes,
        checkpoint=checkpoint_message(evidence.checkpoint),
    )


def _proof(proof: ExportProof) -> pb.ExportProof:
    return pb.ExportProof(
        first_hashes=proof.first,
        last_hashes=proof.last,
        opening=_exported(proof.opening) if proof.opening else None,
        opening_hashes=proof.opening_hashes,
        known_hashes=proof.known,
    )
