"""What the conversions of several services share."""

from __future__ import annotations

from datetime import datetime

from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.registry.v1 import tool_version_pb2

from services.registry.domain.model import LifecycleState


def state_of(state: LifecycleState) -> tool_version_pb2.LifecycleState.ValueType:
    return tool_version_pb2.LifecycleState.Value(f"LIFECYCLE_STATE_{state.name}")


def timestamp(moment: datetime) -> Timestamp:
    message = Timestamp()
    message.FromDatetime(moment)
    return message
