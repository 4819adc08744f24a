"""What only the log itself can see: whether all that it has stored beside its records still belongs to them.

An export brings the bytes that are hashed. The columns by which records are found, and the hashes that proofs are made of,
stay in the database, and whoever changes those hides a record or spoils a proof without touching what was signed.
"""

from __future__ import annotations

from toolmesh.audit.v1 import log_service_pb2

from toolmesh_sdk.audit.remote import RemoteLog
from toolmesh_sdk.audit.verify.report import Finding, Kind

_INDEX = "the record is not found by what it says"
_HASH = "the records are as they were signed, and what the log has stored about them is not"
_KINDS = {
    log_service_pb2.DEFECT_INDEX_CHANGED: (Kind.INDEX, _INDEX),
    log_service_pb2.DEFECT_SEQUENCE_BROKEN: (Kind.INSERTION, "there is a record that does not belong to the shard"),
    log_service_pb2.DEFECT_PAYLOAD_MISSING: (Kind.UNEXPLAINED_ERASURE, "the log does not know what erased the payload"),
}


def log_reported_finding(log: RemoteLog, shard: int, first: int, end: int) -> Finding | None:
    """Return what the log finds wrong itself with a part of a shard whose records are good."""
    bad = log.verify_range(first, end)
    if bad is None:
        return None
    kind, detail = _KINDS.get(bad.defect, (Kind.STORED_HASH, _HASH))
    return Finding(kind, detail, shard=shard, sequence=bad.sequence)
