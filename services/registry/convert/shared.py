"""Conversions that several services share."""

from __future__ import annotations

from datetime import UTC, datetime

from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.registry.v1 import tool_version_pb2

from libs.common.call_context import Call
from libs.common.errors import MeshError, Reason, Violation
from services.registry.domain.caller import Caller, Grant
from services.registry.domain.model import LifecycleState


def state_of(state: LifecycleState) -> tool_version_pb2.LifecycleState.ValueType:
    return tool_version_pb2.LifecycleState.Value(f"LIFECYCLE_STATE_{state.name}")


def timestamp(moment: datetime) -> Timestamp:
    message = Timestamp()
    message.FromDatetime(moment)
    return message


def datetime_of(stamp: Timestamp, path: str) -> datetime:
    """Convert a timestamp. Raises INVALID_REQUEST if it is out of range."""
    try:
        return stamp.ToDatetime(tzinfo=UTC)
    except (ValueError, OverflowError):
        violation = Violation(path, "timestamp.range", "is not a moment of the years 1 to 9999")
        raise MeshError(Reason.INVALID_REQUEST, violations=[violation]) from None


def caller_of(call: Call) -> Caller | None:
    """Return the caller of a call; None if a peer acts for itself."""
    identity = call.identity
    if identity is None:
        return None
    return Caller(tuple(Grant(grant.tool, grant.version_constraint) for grant in identity.tools), identity.scopes)
