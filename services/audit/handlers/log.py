"""gRPC handlers of LogService, in the order of the contract."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from toolmesh.audit.v1 import log_service_pb2 as pb
from toolmesh.audit.v1 import log_service_pb2_grpc as rpc

from libs.common.call_context import serving
from libs.common.rpc.holder_check import peer_thumbprint
from libs.common.rpc.stream_slots import StreamSlots, stream_holder
from services.audit.convert import log as convert
from services.audit.convert.audit import checkpoint_message
from services.audit.domain.evidence.checkpoints import CheckpointSigner
from services.audit.domain.evidence.cosignature import Witnesses
from services.audit.domain.evidence.listing import PageRequest, list_checkpoints, list_holds, list_shards
from services.audit.domain.evidence.model import Requester
from services.audit.domain.evidence.ports import CheckpointStore, ShardStore
from services.audit.domain.evidence.prove import Prover
from services.audit.domain.evidence.retention import Retention
from services.audit.domain.evidence.verify_range import VerifyRange
from services.audit.domain.merkle.note import Origin


def _requester() -> Requester:
    call = serving()
    return Requester(call.peer, call.identity, call.trace.trace_id, peer_thumbprint(call))


@dataclass(frozen=True)
class LogHandlers(rpc.LogServiceServicer):
    """Implements LogService."""

    checkpoints: CheckpointSigner
    store: CheckpointStore
    shards: ShardStore
    prover: Prover
    verifier: VerifyRange
    retention: Retention
    witnesses: Witnesses
    origin: Origin
    slots: StreamSlots
    relay: str
    """The kind of the relay's sink, as configured."""

    async def ListCheckpoints(self, request: pb.ListCheckpointsRequest, context: Any) -> pb.ListCheckpointsResponse:
        paging = PageRequest(request.page_size, request.page_token)
        page = await list_checkpoints(self.store, request.shard, paging, ascending=request.ascending)
        messages = [checkpoint_message(checkpoint) for checkpoint in page.items]
        return pb.ListCheckpointsResponse(checkpoints=messages, next_page_token=page.next_page_token)

    async def GetInclusionProof(
        self, request: pb.GetInclusionProofRequest, context: Any
    ) -> pb.GetInclusionProofResponse:
        sequence_or_id = request.record_id if request.HasField("record_id") else request.sequence
        proof = await self.prover.prove_inclusion(sequence_or_id, request.tree_size, serving().tenant)
        return convert.inclusion_message(proof)

    async def GetConsistencyProof(
        self, request: pb.GetConsistencyProofRequest, context: Any
    ) -> pb.GetConsistencyProofResponse:
        proof = await self.prover.prove_consistency(request.shard, request.first_size, request.second_size)
        return convert.consistency_message(proof)

    async def VerifyRange(self, request: pb.VerifyRangeRequest, context: Any) -> pb.VerifyRangeResponse:
        with self.slots.hold(*stream_holder()):
            verification = await self.verifier.verify(request.first_sequence, request.end_sequence)
        return convert.verification_message(verification)

    async def ListShards(self, request: pb.ListShardsRequest, context: Any) -> pb.ListShardsResponse:
        page = await list_shards(self.shards, PageRequest(request.page_size, request.page_token))
        messages = [convert.shard_message(shard, self.origin) for shard in page.items]
        return pb.ListShardsResponse(shards=messages, next_page_token=page.next_page_token)

    async def CloseShard(self, request: pb.CloseShardRequest, context: Any) -> pb.CloseShardResponse:
        closed = await self.retention.close_shard(request.shard)
        return pb.CloseShardResponse(shard=convert.shard_message(closed, self.origin))

    async def ArchiveShard(self, request: pb.ArchiveShardRequest, context: Any) -> pb.ArchiveShardResponse:
        archived = await self.retention.archive_shard(
            request.shard, request.manifest_digest, _requester(), drop=request.drop_records
        )
        return pb.ArchiveShardResponse(shard=convert.shard_message(archived, self.origin))

    async def ListLegalHolds(self, request: pb.ListLegalHoldsRequest, context: Any) -> pb.ListLegalHoldsResponse:
        page = await list_holds(self.shards, PageRequest(request.page_size, request.page_token))
        messages = [convert.hold_message(hold) for hold in page.items]
        return pb.ListLegalHoldsResponse(holds=messages, next_page_token=page.next_page_token)

    async def PlaceLegalHold(self, request: pb.PlaceLegalHoldRequest, context: Any) -> pb.PlaceLegalHoldResponse:
        placed = await self.retention.place_hold(convert.hold_of(request), _requester())
        return pb.PlaceLegalHoldResponse(hold=convert.hold_message(placed))

    async def ReleaseLegalHold(self, request: pb.ReleaseLegalHoldRequest, context: Any) -> pb.ReleaseLegalHoldResponse:
        released = await self.retention.release_hold(request.hold_id, request.reason, _requester())
        return pb.ReleaseLegalHoldResponse(hold=convert.hold_message(released))

    async def ErasePayload(self, request: pb.ErasePayloadRequest, context: Any) -> pb.ErasePayloadResponse:
        erased_by = await self.retention.erase_payload(request.sequence, request.reason, _requester())
        return pb.ErasePayloadResponse(erased_by=erased_by, relayed_copy=convert.RELAYED_COPIES[self.relay])

    async def AddCosignature(self, request: pb.AddCosignatureRequest, context: Any) -> pb.AddCosignatureResponse:
        signed = await self.checkpoints.add_cosignature(self.witnesses, request.shard, request.tree_size, request.line)
        return pb.AddCosignatureResponse(checkpoint=checkpoint_message(signed))
