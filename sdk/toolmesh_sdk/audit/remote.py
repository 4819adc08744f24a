"""The audit log of a running mesh, for the verifier and the exporter."""

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

# The maximum time of an export stream; a longer export continues in another stream.
STREAM_SECONDS = 3000.0
_PAGE = 1000
# The records per VerifyRange call, which fit any deadline; a multiple of the log's hash blocks.
_RECORDS_PER_CHECK = 100 * 256


class RemoteLog:
    """Reads the log over one transport, with retries. Every failure is a ToolmeshError."""

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
        """Yield the stored checkpoints of a shard, smallest first."""
        request = log_service_pb2.ListCheckpointsRequest(shard=shard, page_size=_PAGE, ascending=True)
        yield from self._pages(self._log.ListCheckpoints, request, "checkpoints")

    def checkpoint(self) -> checkpoint_pb2.Checkpoint:
        """Return a checkpoint of all durable records."""
        return self._call(self._audit.GetCheckpoint, pb.GetCheckpointRequest()).checkpoint  # type: ignore[no-any-return]

    def consistency(self, shard: int, first: int, second: int) -> log_service_pb2.GetConsistencyProofResponse:
        """Return the consistency proof between two sizes of a shard."""
        request = log_service_pb2.GetConsistencyProofRequest(shard=shard, first_size=first, second_size=second)
        return self._call(self._log.GetConsistencyProof, request)  # type: ignore[no-any-return]

    def verify_range(self, first: int, end: int) -> log_service_pb2.BadPlace | None:
        """Ask the log to verify a range itself; return the first bad range, if any."""
        while first < end:
            range_end = min(end, first + _RECORDS_PER_CHECK)
            request = log_service_pb2.VerifyRangeRequest(first_sequence=first, end_sequence=range_end)
            answer = self._call(self._log.VerifyRange, request)
            if answer.HasField("bad"):
                return answer.bad  # type: ignore[no-any-return]
            if answer.end_sequence <= first:
                return None
            first = answer.end_sequence
        return None

    def verifier_key(self, shard: shard_pb2.Shard) -> str:
        """Return the verifier key that the log reports, from an export of one record."""
        first = pb.SequenceRange(first_sequence=shard.first_sequence, end_sequence=shard.first_sequence + 1)
        parts = list(self.export(pb.ExportRecordsRequest(range=first)))
        return str(parts[0].header.verifier_key)

    def export(self, request: pb.ExportRecordsRequest) -> Any:
        """Yield the parts of an export. After a lost connection it resumes after the last record; the new
        header may have a later checkpoint."""
        options = self._transport.options
        attempts = options.start_attempts(STREAM_SECONDS, repeatable=True)
        header: pb.ExportHeader | None = None
        while True:
            attempts.start()
            trace = options.traceparent()
            stream = self._audit.ExportRecords(request, timeout=STREAM_SECONDS, metadata=options.metadata(trace))
            try:
                for part in stream:
                    if part.WhichOneof("part") == "header":
                        # The header fixes the range; otherwise a growing log would extend a resumed export.
                        header = part.header
                        request = _resume_request(request, header, request.resume_sequence)
                    if part.WhichOneof("part") == "records":
                        request = _resume_request(request, header, part.records.records[-1].sequence + 1)
                        attempts = options.start_attempts(STREAM_SECONDS, repeatable=True)
                        attempts.start()
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
            page = self._call(method, request)
            yield from getattr(page, field)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def _call(self, method: Callable[..., Any], request: Any) -> Any:
        return self._transport.unary(method, request, self._timeout, repeatable=True)


def _resume_request(
    request: pb.ExportRecordsRequest, header: pb.ExportHeader | None, sequence: int
) -> pb.ExportRecordsRequest:
    """Return the request that resumes an export at a sequence."""
    if header is None:
        return request
    part = pb.SequenceRange(first_sequence=header.first_sequence, end_sequence=header.end_sequence)
    return pb.ExportRecordsRequest(range=part, resume_sequence=sequence, known_size=request.known_size)


def is_missing(error: ToolmeshError) -> bool:
    """Return whether the requested part of the log does not exist."""
    return error.reason is Reason.NOT_FOUND
