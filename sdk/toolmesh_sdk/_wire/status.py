"""Converts failed RPCs to exceptions. The error envelope is in the status details; without one the transport failed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from google.rpc import status_pb2
from toolmesh.common.v1 import error_reason_pb2 as pb
from toolmesh.common.v1.error_table import ROWS, Reason

from toolmesh_sdk.errors import Failure, ToolmeshError, Violation, error_for_reason, error_from_failure

_DETAILS_KEY = "grpc-status-details-bin"
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


def error_from_rpc(failure: grpc.RpcError, trace_id: str = "") -> ToolmeshError:
    """Return the exception of a failed RPC. Without an envelope the status code gives its reason, unanswered."""
    call: Any = failure
    envelope = _find_envelope(call.trailing_metadata() or ())
    if envelope is not None:
        return error_from_envelope(envelope)
    # The text of the edge or the transport is for people only, so it is metadata.
    details = str(call.details() or "")
    reason = _WITHOUT_ENVELOPE.get(call.code(), Reason.INTERNAL)
    return error_for_reason(
        reason,
        # The edge uses the same status for a missing and an invalid token.
        message="The credential is missing or not accepted." if reason is Reason.UNAUTHENTICATED else "",
        metadata={"transport": details} if details else {},
        trace_id=trace_id,
        answered=False,
    )


def error_from_envelope(envelope: pb.ErrorEnvelope) -> ToolmeshError:
    """Return the exception of an envelope. Its fields win over the local table, so that newer errors pass unchanged."""
    reason = Reason(envelope.reason) if int(envelope.reason) in Reason.__members__.values() else Reason.INTERNAL
    row = ROWS[reason]
    return error_from_failure(
        Failure(
            reason=reason,
            code=envelope.code or row.code,
            category=_label(pb.ErrorCategory, envelope.category, "ERROR_CATEGORY_") or row.category,
            error_class=_label(pb.ErrorClass, envelope.error_class, "ERROR_CLASS_").lower() or row.error_class,
            retryable=envelope.retryable,
            retry_after=envelope.retry_after.ToMicroseconds() / 1e6 if envelope.HasField("retry_after") else None,
            message=envelope.message or row.title,
            resolution=envelope.resolution or row.resolution,
            trace_id=envelope.trace_id,
            invocation_id=envelope.invocation_id,
            violations=tuple(Violation(v.path, v.rule, v.message) for v in envelope.violations),
            metadata=dict(envelope.metadata),
            # The edge reports `unknown` if it lost the service during the call.
            answered=envelope.metadata.get("outcome") != "unknown",
        )
    )


def _label(enum: Any, number: int, prefix: str) -> str:
    """Return the name of an enum value without its prefix; empty for zero and for unknown values."""
    return str(enum.Name(number)).removeprefix(prefix) if number and number in enum.values() else ""


def _find_envelope(metadata: Iterable[tuple[str, str | bytes]]) -> pb.ErrorEnvelope | None:
    for key, value in metadata:
        if key == _DETAILS_KEY and isinstance(value, bytes):
            return _unpack(value)
    return None


def _unpack(value: bytes) -> pb.ErrorEnvelope | None:
    envelope = pb.ErrorEnvelope()
    try:
        details = status_pb2.Status.FromString(value).details
        return envelope if any(detail.Unpack(envelope) for detail in details) else None
    except DecodeError:
        return None
