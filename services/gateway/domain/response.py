"""Encodes JSON-RPC 2.0 responses (section 5). The error object carries the whole error envelope as its data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from libs.common.errors import MeshError
from libs.common.json.jsonio import dump
from services.gateway.domain.model import Response


def response_body(responses: Sequence[Response], *, batch: bool, trace_id: str) -> bytes:
    """Return the body of the response to a message; empty when only notifications were sent."""
    if not responses:
        return b""
    if not batch:
        return dump(response_object(responses[0], trace_id))
    return dump([response_object(response, trace_id) for response in responses])


def response_object(response: Response, trace_id: str) -> dict[str, Any]:
    """Return one response object, with either `result` or `error`."""
    if response.error is None:
        return {"jsonrpc": "2.0", "id": response.id, "result": response.result}
    return {"jsonrpc": "2.0", "id": response.id, "error": error_object(response.error, trace_id)}


def error_object(error: MeshError, trace_id: str) -> dict[str, Any]:
    """Return the error object of a response, by the error's row in the error table."""
    return {"code": error.row.jsonrpc_code, "message": error.message, "data": envelope(error, trace_id)}


def envelope(error: MeshError, trace_id: str) -> dict[str, Any]:
    """Return the error envelope of the contract, as JSON."""
    row = error.row
    return {
        "reason": error.reason.name,
        "code": row.code,
        "category": row.category,
        "error_class": row.error_class,
        "retryable": error.retryable,
        "retry_after_ms": None if error.retry_after is None else round(error.retry_after * 1000, 3),
        "message": error.message,
        "resolution": row.resolution,
        "trace_id": trace_id,
        "invocation_id": error.invocation_id,
        "violations": [{"path": v.path, "rule": v.rule, "message": v.message} for v in error.violations[:100]],
        "metadata": error.metadata,
    }
