"""Shows an invocation as a task of MCP, in the form of each revision."""

from __future__ import annotations

from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.executor.v1.invocation_pb2 import (
    INVOCATION_STATE_AWAITING_APPROVAL,
    INVOCATION_STATE_BLOCKED,
    INVOCATION_STATE_CANCELED,
    INVOCATION_STATE_DENIED,
    INVOCATION_STATE_FAILED,
    INVOCATION_STATE_NEEDS_INPUT,
    INVOCATION_STATE_SCHEMA_PARSE_FAILED,
    INVOCATION_STATE_SUCCEEDED,
    INVOCATION_STATE_TIMED_OUT,
    INVOCATION_STATE_VALIDATION_FAILED,
    Invocation,
)

TASKS_EXTENSION = "io.modelcontextprotocol/tasks"
RELATED_TASK_META_KEY = "io.modelcontextprotocol/related-task"
POLL_MS = 1000
_STATUS = {
    INVOCATION_STATE_NEEDS_INPUT: "input_required",
    INVOCATION_STATE_SUCCEEDED: "completed",
    INVOCATION_STATE_CANCELED: "cancelled",
    **dict.fromkeys(
        (
            INVOCATION_STATE_SCHEMA_PARSE_FAILED,
            INVOCATION_STATE_VALIDATION_FAILED,
            INVOCATION_STATE_DENIED,
            INVOCATION_STATE_FAILED,
            INVOCATION_STATE_TIMED_OUT,
            INVOCATION_STATE_BLOCKED,
        ),
        "failed",
    ),
}


def status_of(invocation: Invocation) -> str:
    """Return the status of the task."""
    return _STATUS.get(invocation.state, "working")


def has_ended(invocation: Invocation) -> bool:
    """Return whether the task never changes again."""
    return status_of(invocation) in ("completed", "failed", "cancelled")


def task_of(invocation: Invocation, *, stateless: bool) -> dict[str, Any]:
    """Return the task. The revisions name two of its fields differently."""
    changed = invocation.transitions[-1].enter_time if invocation.transitions else invocation.create_time
    lifetime = (invocation.deadline.ToMilliseconds() - invocation.create_time.ToMilliseconds()) or None
    shown: dict[str, Any] = {
        "taskId": invocation.invocation_id,
        "status": status_of(invocation),
        "createdAt": _time(invocation.create_time),
        "lastUpdatedAt": _time(changed),
        "ttlMs" if stateless else "ttl": lifetime,
        "pollIntervalMs" if stateless else "pollInterval": POLL_MS,
    }
    message = _message(invocation)
    return {**shown, "statusMessage": message} if message else shown


def _message(invocation: Invocation) -> str:
    if invocation.state == INVOCATION_STATE_AWAITING_APPROVAL:
        return f"waits for approval of {invocation.ticket}"
    if invocation.HasField("error"):
        return invocation.error.message
    return invocation.input_request.message


def _time(time: Timestamp) -> str:
    return time.ToJsonString()
