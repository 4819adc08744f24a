"""The audit log of a running mesh, as a verifier and an exporter ask it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc
from toolmesh.audit.v1 import audit_service_pb2 as pb
from toolmesh.audit.v1 import checkpoint_pb2, log_service_pb2, shard_pb2
from toolmesh.audit.v1.audit_service_pb2_grpc import AuditServiceStub
from toolmesh.audit.v1.log_service_pb2_grpc import LogServiceStub
from toolmesh.common.v1.error_table import Reason

from toolmesh_sdk._wire.status import error_from_rpc
from toolmesh_sdk._wire.trace import trace_id_of
from toolmesh_sdk._wire.transport import Transport
from toolmesh_sdk.errors import ToolmeshError

# No stream of an export outlives this; a longer export goes on in another one.
STREAM_SECONDS = 3000.0
_PAGE = 1000
# So many records are verified well within any deadline; whole blocks, of which the log keeps the hashes.
_VERIFIED_AT_ONCE = 100 * 256


class RemoteLog:
    """Asks over one transport. Every failure is a ToolmeshError; what is lost on the way is asked for again."""

    def __init__(self, transport: Transport, timeout: float | None = None) -> None:
        self._transport, self._timeout = transport, timeout
        self._audit, self._log = AuditServiceStub(transport.channel), LogServiceStub(transport.channel)

    def shards(self) -> list[shard_pb2.Shard]:
        """Return all shards, in order."""
        return list(self._pages(self._log.ListShards, log_service_pb2.ListShardsRequest(page_size=_PAGE), "shards"))

    def holds(self) -> list[shard_pb2.LegalHold]:
        """Return all legal holds, in order."""
        request = log_service_pb2.ListLegalHoldsRequest(page_size=_PAGE)
        return list(self._pages(self._log.ListLegalHolds, request, "holds"))

    def checkpoints(self, shard: int) -> Iterator[checkpoint_pb2.Checkpoint]:
        """Yield the stored checkpoints of a shard, the smallest first."""
        request = log_service_pb2.ListCheckpointsRequest(shard=shard, page_size=_PAGE, ascending=True)
        yield from self._pages(self._log.ListCheckpoints, request, "checkpoints")

    def checkpoint(self) -> checkpoint_pb2.Checkpoint:
        """Return a checkpoint over everything that is durable now."""
        return self._ask(self._audit.GetCheckpoint, pb.GetCheckpointRequest()).checkpoint  # type: ignore[no-any-return]

    def consistency(self, shard: int, first: int, second: int) -> log_service_pb2.GetConsistencyProofResponse:
        """Return the proof that one size of a shard continues another."""
        request = log_service_pb2.GetConsistencyProofRequest(shard=shard, first_size=first, second_size=second)
        return self._ask(self._log.GetConsistencyProof, request)  # type: ignore[no-any-return]

    def own_verdict(self, first: int, end: int) -> log_service_pb2.BadPlace | None:
        """Return the first bad place of a range that the log finds itself, if any."""
        while first < end:
            upto = min(end, first + _VERIFIED_AT_ONCE)
            request = log_service_pb2.VerifyRangeRequest(first_sequence=first, end_sequence=upto)
            answer = self._ask(self._log.VerifyRange, request)
            if answer.HasField("bad"):
                return answer.bad  # type: ignore[no-any-return]
            if answer.end_sequence <= first:
                return None
            first = answer.end_sequence
        return None

    def verifier_key(self, shard: shard_pb2.Shard) -> str:
        """Return the key that the log says is its own, on the occasion of an export of one record."""
        first = pb.SequenceRange(first_sequence=shard.first_sequence, end_sequence=shard.first_sequence + 1)
        parts = list(self.export(pb.ExportRecordsRequest(range=first)))
        return str(parts[0].header.verifier_key)

    def export(self, request: pb.ExportRecordsRequest) -> Any:
        """Yield the parts of an export. When the connection is lost it goes on behind the last record: with a header of the same
        part, and perhaps of a later checkpoint."""
        options = self._transport.options
        attempts = options.begin(STREAM_SECONDS, repeatable=True)
        header: pb.ExportHeader | None = None
        while True:
            attempts.begin()
            trace = options.traceparent()
            stream = self._audit.ExportRecords(request, timeout=STREAM_SECONDS, metadata=options.metadata(trace))
            try:
                for part in stream:
                    if part.WhichOneof("part") == "header":
                        # It fixed what will follow; without that, a log that grows would begin a longer export after a break.
                        header = part.header
                        request = _continued(request, header, request.resume_sequence)
                    if part.WhichOneof("part") == "records":
                        request = _continued(request, header, part.records.records[-1].sequence + 1)
                        attempts = options.begin(STREAM_SECONDS, repeatable=True)
                        attempts.begin()
                    yield part
                return
            except grpc.RpcError as failure:
                error = error_from_rpc(failure, trace_id_of(trace))
            finally:
                stream.cancel()
            wait = attempts.wait_after(error)
            if wait is None:
                raise error
            self._transport.pause(wait)

    def _pages(self, method: Callable[..., Any], request: Any, field: str) -> Iterator[Any]:
        while True:
            page = self._ask(method, request)
            yield from getattr(page, field)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def _ask(self, method: Callable[..., Any], request: Any) -> Any:
        return self._transport.unary(method, request, self._timeout, repeatable=True)


def _continued(
    request: pb.ExportRecordsRequest, header: pb.ExportHeader | None, sequence: int
) -> pb.ExportRecordsRequest:
    """Return the request for the rest of an export that has come this far."""
    if header is None:
        return request
    part = pb.SequenceRange(first_sequence=header.first_sequence, end_sequence=header.end_sequence)
    return pb.ExportRecordsRequest(range=part, resume_sequence=sequence, known_size=request.known_size)


def is_missing(error: ToolmeshError) -> bool:
    """Say whether the log holds nothing of what was asked for."""
    return error.reason is Reason.NOT_FOUND
