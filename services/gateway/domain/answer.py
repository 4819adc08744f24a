"""Answers to bytes: JSON-RPC 2.0, section 5. The error object carries the whole error envelope as its data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from libs.common.errors import MeshError
from libs.common.json.jsonio import dump
from services.gateway.domain.model import Answer


def body_of(answers: Sequence[Answer], *, batch: bool, trace_id: str) -> bytes:
    """Return the body that answers a message; empty when nobody waits for an answer."""
    if not answers:
        return b""
    if not batch:
        return dump(response_object(answers[0], trace_id))
    return dump([response_object(answer, trace_id) for answer in answers])


def response_object(answer: Answer, trace_id: str) -> dict[str, Any]:
    """Return one response: exactly one of `result` and `error` is in it."""
    if answer.error is None:
        return {"jsonrpc": "2.0", "id": answer.id, "result": answer.result}
    return {"jsonrpc": "2.0", "id": answer.id, "error": error_object(answer.error, trace_id)}


def error_object(error: MeshError, trace_id: str) -> dict[str, Any]:
    """Return the error of a response. Its numbers and words are those of the error's row in the one table."""
    return {"code": error.row.jsonrpc_code, "message": error.message, "data": envelope(error, trace_id)}


def envelope(error: MeshError, trace_id: str) -> dict[str, Any]:
    """Return the error envelope of the contract, as JSON."""
    row = error.row
    return {
        "reason": error.reason.name,
        "code": row.code,
        "category": row.category,
        "error_class": row.error_class,
        "retryable": row.retryable,
        "retry_after_ms": None if error.retry_after is None else round(error.retry_after * 1000, 3),
        "message": error.message,
        "resolution": row.resolution,
        "trace_id": trace_id,
        "invocation_id": error.invocation_id,
        "violations": [{"path": v.path, "rule": v.rule, "message": v.message} for v in error.violations[:100]],
        "metadata": error.metadata,
    }
