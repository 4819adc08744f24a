"""Converts mesh errors to gRPC statuses and back. The status details carry the envelope and the standard ErrorInfo."""

from __future__ import annotations

from collections.abc import Iterable

import grpc
import grpc.aio
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2
from toolmesh.common.v1 import error_reason_pb2 as pb

from libs.common.call_context import current_call
from libs.common.errors import MeshError, Reason, Violation
from libs.common.rpc.error_size import cut, fit

DOMAIN = "toolmesh.dev"
DETAILS_KEY = "grpc-status-details-bin"
# Length of the status message; the whole text is in the envelope. It is sent twice, once percent-encoded.
_STATUS_TEXT = 120
# Larger metadata is in the envelope alone.
_INFO_BYTES = 512
_CODES = {code.value[0]: code for code in grpc.StatusCode}
_WITHOUT_ENVELOPE = {
    grpc.StatusCode.UNAVAILABLE: Reason.SERVICE_UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED: Reason.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED: Reason.CANCELED,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Reason.OVERLOADED,
    grpc.StatusCode.UNAUTHENTICATED: Reason.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED: Reason.PEER_NOT_ALLOWED,
    grpc.StatusCode.UNIMPLEMENTED: Reason.METHOD_NOT_FOUND,
    grpc.StatusCode.INVALID_ARGUMENT: Reason.INVALID_REQUEST,
}


def envelope(error: MeshError) -> pb.ErrorEnvelope:
    """Build the error envelope, limited in size."""
    row, call = error.row, current_call()
    message = pb.ErrorEnvelope(
        reason=pb.ErrorReason.ValueType(error.reason.value),
        code=row.code,
        category=pb.ErrorCategory.Value(f"ERROR_CATEGORY_{row.category}"),
        error_class=pb.ErrorClass.Value(f"ERROR_CLASS_{row.error_class.upper()}"),
        retryable=error.retryable,
        message=error.message,
        resolution=row.resolution,
        trace_id=call.trace.trace_id if call else "",
        invocation_id=error.invocation_id,
        metadata=error.metadata,
        evidence_refs=error.evidence,
    )
    if error.retry_after is not None:
        message.retry_after.CopyFrom(_duration(error.retry_after))
    fit(message, error.violations)
    return message


def status_code(error: MeshError) -> grpc.StatusCode:
    """Return the gRPC status code of an error."""
    return _CODES[error.row.grpc_status]


def status_text(error: MeshError) -> str:
    """Return the message of the status, shortened."""
    return cut(error.message, _STATUS_TEXT)


def trailing_details(error: MeshError) -> tuple[tuple[str, bytes], ...]:
    """Return the trailing metadata that carries the whole error."""
    parts = [_info(error), envelope(error)]
    if error.retry_after is not None:
        parts.append(error_details_pb2.RetryInfo(retry_delay=_duration(error.retry_after)))
    status = status_pb2.Status(code=error.row.grpc_status, message=status_text(error))
    for part in parts:
        packed = any_pb2.Any()
        packed.Pack(part)
        status.details.append(packed)
    return ((DETAILS_KEY, status.SerializeToString()),)


def _info(error: MeshError) -> error_details_pb2.ErrorInfo:
    """Return the standard ErrorInfo, with the metadata if it is small."""
    known = {"code": error.row.code}
    info = error_details_pb2.ErrorInfo(reason=error.reason.name, domain=DOMAIN, metadata={**error.metadata, **known})
    if info.ByteSize() > _INFO_BYTES:
        info = error_details_pb2.ErrorInfo(reason=error.reason.name, domain=DOMAIN, metadata=known)
    return info


def from_rpc_error(error: grpc.aio.AioRpcError) -> MeshError:
    """Rebuild the error of a peer. Without an envelope it came from the transport, and its text is not passed on."""
    details = _find_envelope(error.trailing_metadata() or ())
    if details is None:
        return MeshError(_WITHOUT_ENVELOPE.get(error.code(), Reason.INTERNAL))
    return from_envelope(details)


def from_envelope(details: pb.ErrorEnvelope) -> MeshError:
    """Rebuild an error from its envelope; an unknown reason becomes INTERNAL."""
    known = int(details.reason) in Reason.__members__.values()
    return MeshError(
        Reason(details.reason) if known else Reason.INTERNAL,
        message=details.message,
        violations=[Violation(v.path, v.rule, v.message) for v in details.violations],
        metadata=dict(details.metadata),
        retry_after=details.retry_after.ToMicroseconds() / 1e6 if details.HasField("retry_after") else None,
        invocation_id=details.invocation_id,
        evidence=tuple(details.evidence_refs),
        retryable=details.retryable if known else None,
    )


def _find_envelope(metadata: Iterable[tuple[str, str | bytes]]) -> pb.ErrorEnvelope | None:
    for key, value in metadata:
        if key == DETAILS_KEY and isinstance(value, bytes):
            for detail in status_pb2.Status.FromString(value).details:
                details = pb.ErrorEnvelope()
                if detail.Unpack(details):
                    return details
    return None


def _duration(seconds: float) -> duration_pb2.Duration:
    duration = duration_pb2.Duration()
    duration.FromMicroseconds(int(seconds * 1_000_000))
    return duration
