"""Sample records, and an independent computation of Merkle roots."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.audit.v1 import audit_record_pb2 as record_pb
from toolmesh.audit.v1 import audit_service_pb2 as pb

from libs.common.ids import new_id
from services.audit.convert.audit import entries_of
from services.audit.domain.model import Entry


def stamp(moment: datetime) -> Timestamp:
    """Return a moment as a message."""
    made = Timestamp()
    made.FromDatetime(moment)
    return made


def a_record(**changes: Any) -> record_pb.AuditRecord:
    """Return a valid record, changed by `changes`."""
    fields: dict[str, Any] = {
        "record_id": new_id(),
        "event_class": record_pb.EVENT_CLASS_INVOCATION_STARTED,
        "event_time": stamp(datetime.now(UTC)),
        "trace_id": "0af7651916cd43dd8448eb211c80319c",
        "tool_version": "tools/core.echo/versions/1.0.0",
        "arguments_summary": b'{"message": "hello", "count": 3}',
        "authorization": record_pb.AUTHORIZATION_OUTCOME_ALLOW,
        "status": record_pb.RECORD_STATUS_SUCCESS,
        **changes,
    }
    return record_pb.AuditRecord(**fields)


def an_entry(**changes: Any) -> Entry:
    """Return a record as an entry."""
    [entry] = entries_of(pb.AppendRecordsRequest(batch=1, records=[a_record(**changes)]), "executor")
    return entry


def expected_root(leaves: Sequence[bytes]) -> bytes:
    """Return the root over the leaves' content by the recursive definition of RFC 6962, section 2.1."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return hashlib.sha256(b"\x00" + leaves[0]).digest()
    split = 1 << ((len(leaves) - 1).bit_length() - 1)
    left, right = expected_root(leaves[:split]), expected_root(leaves[split:])
    return hashlib.sha256(b"\x01" + left + right).digest()
