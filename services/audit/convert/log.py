"""Converts messages of LogService, and builds the records that the log writes about itself."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.audit.v1 import audit_record_pb2 as record_pb
from toolmesh.audit.v1 import log_service_pb2 as pb
from toolmesh.audit.v1 import shard_pb2 as shard_pb
from toolmesh.common.v1 import caller_pb2

from libs.common.auth.identity import Identity
from libs.common.ids import new_id
from libs.common.runtime.clock import Clock
from services.audit.convert.audit import entry_of, to_timestamp
from services.audit.domain.evidence.model import (
    Archival,
    Defect,
    Erasure,
    LegalHold,
    Requester,
    Shard,
    ShardLink,
    VerificationResult,
)
from services.audit.domain.evidence.prove import ConsistencyProof, InclusionProof
from services.audit.domain.merkle.note import Origin
from services.audit.domain.model import Entry

# The log's own records have the service as their writer.
WRITER = "audit"
_TIERS = {name.removeprefix("CREDENTIAL_TIER_").lower(): number for name, number in caller_pb2.CredentialTier.items()}
# What becomes of an erased payload that the relay sent before, by kind of sink.
RELAYED_COPIES = {
    "redis": pb.RELAYED_COPY_REMOVED_BY_RELAY,
    "kafka": pb.RELAYED_COPY_STAYS,
    "none": pb.RELAYED_COPY_UNSPECIFIED,
}
_DEFECTS = {defect: pb.Defect.Value(f"DEFECT_{defect.name}") for defect in Defect}


class ProtoSelfRecorder:
    """Implements SelfRecorder. Record ids are new, so no writer can reserve one beforehand."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def record_shard_opened(self, link: ShardLink) -> Entry:
        """Implement `SelfRecorder.record_shard_opened`."""
        return self._entry(
            record_pb.EVENT_CLASS_SHARD_OPENED,
            previous_shard=shard_pb.ShardLink(
                number=link.number,
                first_sequence=link.first_sequence,
                tree_size=link.size,
                root_hash=link.root,
                origin=link.origin,
            ),
        )

    def record_payload_erased(self, erasure: Erasure, by: Requester) -> Entry:
        """Implement `SelfRecorder.record_payload_erased`."""
        part = shard_pb.PayloadErasure(sequence=erasure.sequence, leaf_hash=erasure.leaf_hash, reason=erasure.reason)
        act = _act(f"records/{erasure.sequence}", by, erasure.reason)
        return self._entry(record_pb.EVENT_CLASS_PAYLOAD_ERASED, by, erasure=part, act=act)

    def record_hold_placed(self, hold: LegalHold, by: Requester) -> Entry:
        """Implement `SelfRecorder.record_hold_placed`."""
        act = _act(f"legalHolds/{hold.hold_id}", by, hold.reason)
        return self._entry(record_pb.EVENT_CLASS_HOLD_PLACED, by, hold=_hold_change(hold), act=act)

    def record_hold_released(self, hold: LegalHold, by: Requester) -> Entry:
        """Implement `SelfRecorder.record_hold_released`."""
        act = _act(f"legalHolds/{hold.hold_id}", by, hold.reason)
        return self._entry(record_pb.EVENT_CLASS_HOLD_RELEASED, by, hold=_hold_change(hold), act=act)

    def record_shard_archived(self, archival: Archival, by: Requester) -> Entry:
        """Implement `SelfRecorder.record_shard_archived`."""
        part = shard_pb.ShardArchival(
            shard=archival.shard,
            manifest_digest=archival.manifest_digest,
            records_dropped=archival.records_dropped,
        )
        act = _act(f"shards/{archival.shard}", by)
        return self._entry(record_pb.EVENT_CLASS_SHARD_ARCHIVED, by, archival=part, act=act)

    def _entry(self, event_class: int, by: Requester | None = None, **parts: Any) -> Entry:
        record = record_pb.AuditRecord(
            record_id=new_id(),
            event_class=record_pb.EventClass.ValueType(event_class),
            event_time=to_timestamp(self._clock.now()),
            status=record_pb.RECORD_STATUS_SUCCESS,
            caller=None if by is None else _caller(by),
            trace_id="" if by is None else by.trace_id,
            **parts,
        )
        return entry_of(record, WRITER)


def _act(resource: str, by: Requester, reason: str = "") -> record_pb.AdministrativeAct:
    return record_pb.AdministrativeAct(
        resource=resource, reason=reason, certificate_thumbprint=by.certificate_thumbprint
    )


def _hold_change(hold: LegalHold) -> shard_pb.HoldChange:
    return shard_pb.HoldChange(
        hold_id=hold.hold_id,
        first_sequence=hold.first_sequence,
        end_sequence=hold.end_sequence or 0,
        reason=hold.reason,
    )


def _caller(by: Requester) -> caller_pb2.Caller:
    if by.identity is None:
        return caller_pb2.Caller(peer=by.peer)
    known: Identity = by.identity
    return caller_pb2.Caller(
        subject=known.subject,
        agent=known.agent,
        tenant=known.tenant,
        token_id=known.token_id,
        session_id=known.session_id,
        tier=caller_pb2.CredentialTier.ValueType(_TIERS.get(known.tier, 0)),
        delegation_chain=[caller_pb2.Actor(subject=subject, token_id=token) for subject, token in known.chain],
        scopes=sorted(known.scopes),
        peer=by.peer,
    )


# ---- questions


def hold_of(request: pb.PlaceLegalHoldRequest) -> LegalHold:
    """Return the hold of a request."""
    return LegalHold(request.hold_id, request.first_sequence, request.end_sequence or None, request.reason)


# ---- answers


def shard_message(shard: Shard, origin: Origin) -> shard_pb.Shard:
    """Return a shard as a message."""
    return shard_pb.Shard(
        name=f"logs/{shard.log_id}/shards/{shard.number}",
        number=shard.number,
        first_sequence=shard.first_sequence,
        tree_size=shard.size,
        root_hash=shard.root,
        origin=origin.of_shard(shard.log_id, shard.number),
        state=_state(shard),
        open_time=to_timestamp(shard.open_time),
        close_time=_optional(shard.close_time),
        archive_time=_optional(shard.archive_time),
        manifest_digest=shard.manifest_digest,
        drop_time=_optional(shard.drop_time),
    )


def _state(shard: Shard) -> shard_pb.ShardState.ValueType:
    if shard.drop_time is not None:
        return shard_pb.SHARD_STATE_DROPPED
    if shard.archive_time is not None:
        return shard_pb.SHARD_STATE_ARCHIVED
    return shard_pb.SHARD_STATE_CLOSED if shard.close_time is not None else shard_pb.SHARD_STATE_OPEN


def hold_message(hold: LegalHold) -> shard_pb.LegalHold:
    """Return a hold as a message."""
    return shard_pb.LegalHold(
        hold_id=hold.hold_id,
        first_sequence=hold.first_sequence,
        end_sequence=hold.end_sequence or 0,
        reason=hold.reason,
        placed_by=hold.placed_by,
        place_time=_optional(hold.place_time),
        release_time=_optional(hold.release_time),
    )


def inclusion_message(proof: InclusionProof) -> pb.GetInclusionProofResponse:
    """Return an inclusion proof as a message."""
    return pb.GetInclusionProofResponse(
        shard=proof.shard,
        sequence=proof.sequence,
        leaf_index=proof.leaf_index,
        leaf_hash=proof.leaf_hash,
        tree_size=proof.tree_size,
        root_hash=proof.root,
        hashes=proof.hashes,
    )


def consistency_message(proof: ConsistencyProof) -> pb.GetConsistencyProofResponse:
    """Return a consistency proof as a message."""
    return pb.GetConsistencyProofResponse(
        first_size=proof.first_size,
        first_root=proof.first_root,
        second_size=proof.second_size,
        second_root=proof.second_root,
        hashes=proof.hashes,
    )


def verification_message(verdict: VerificationResult) -> pb.VerifyRangeResponse:
    """Return the result of a verification as a message."""
    if verdict.bad is None:
        return pb.VerifyRangeResponse(ok=True, end_sequence=verdict.end)
    bad = pb.BadPlace(sequence=verdict.bad.first, end_sequence=verdict.bad.end, defect=_DEFECTS[verdict.bad.defect])
    return pb.VerifyRangeResponse(end_sequence=verdict.end, bad=bad)


def _optional(moment: datetime | None) -> Timestamp | None:
    return None if moment is None else to_timestamp(moment)
