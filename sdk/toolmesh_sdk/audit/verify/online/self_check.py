"""Asks the log to verify its own indexes and stored hashes.

An export contains the hashed bytes only. Index columns and stored hashes stay in the database; changing them hides a
record or breaks a proof without touching the signed bytes.
"""

from __future__ import annotations

from toolmesh.audit.v1 import log_service_pb2

from toolmesh_sdk.audit.remote import RemoteLog
from toolmesh_sdk.audit.verify.report import Finding, Kind

_INDEX = "the index of the record does not match its content"
_HASH = "the records are authentic, but their stored hashes are not"
_KINDS = {
    log_service_pb2.DEFECT_INDEX_CHANGED: (Kind.INDEX, _INDEX),
    log_service_pb2.DEFECT_SEQUENCE_BROKEN: (Kind.INSERTION, "a record does not belong to the shard"),
    log_service_pb2.DEFECT_PAYLOAD_MISSING: (
        Kind.UNEXPLAINED_ERASURE,
        "the payload is missing without a recorded erasure",
    ),
}


def log_reported_finding(log: RemoteLog, shard: int, first: int, end: int) -> Finding | None:
    """Return the first defect that the log reports about a range of authentic records."""
    bad = log.verify_range(first, end)
    if bad is None:
        return None
    kind, detail = _KINDS.get(bad.defect, (Kind.STORED_HASH, _HASH))
    return Finding(kind, detail, shard=shard, sequence=bad.sequence)
