"""Says what the status of a gRPC call means for the call of the tool."""

from __future__ import annotations

from collections.abc import Sequence

import grpc
import grpc.aio

from libs.common.errors import MeshError, Reason
from services.executor.domain import errors

# The server broke, or the connection did.
_BROKEN = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.DATA_LOSS,
        grpc.StatusCode.CANCELLED,
    }
)
# How grpcio reports an answer beyond `grpc.max_receive_message_length`: with the status of a server that is overloaded.
_TOO_LARGE = "CLIENT: Received message larger than max"
_PUSHBACK = "grpc-retry-pushback-ms"
_UNAUTHORIZED = 401
_MAX_DELAY = 86_400.0


def error_of(failure: grpc.aio.AioRpcError, origin: str, secrets: Sequence[str], limit: int) -> MeshError:
    """Return the error of a failed call. `limit` is the size of the largest answer."""
    code = failure.code()
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return errors.external_timeout(origin, "unknown")
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE in (failure.details() or ""):
        return errors.result_too_large(limit, limit)
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return errors.external_rate_limited(origin, _delay(failure))
    if code is grpc.StatusCode.UNAUTHENTICATED and secrets:
        return errors.credential_refused(secrets[0], _UNAUTHORIZED)
    if code in _BROKEN:
        return errors.external_unavailable(origin, f"grpc_{code.name.lower()}", "unknown")
    message = f"The service answered with status {code.name}; the log of the tool has its text."
    return MeshError(Reason.EXECUTION_FAILED, message=message, metadata={"service": origin, "grpc_status": code.name})


def _delay(failure: grpc.aio.AioRpcError) -> float | None:
    for key, value in failure.trailing_metadata() or ():
        text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
        if key == _PUSHBACK and text.isascii() and text.isdigit():
            return min(int(text[:9]) / 1000, _MAX_DELAY)
    return None
