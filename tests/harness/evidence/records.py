"""Batches of evidence, read as the log reads them."""

from __future__ import annotations

from toolmesh.audit.v1 import audit_record_pb2 as record_pb
from toolmesh.audit.v1 import audit_service_pb2 as pb

from services.audit.convert.audit import entries_of, record_of


def read(batch: pb.AppendRecordsRequest, writer: str = "executor") -> list[record_pb.AuditRecord]:
    """Return the records of a batch as their readers will receive them; raise what the log would answer to the
    batch."""
    return [record_of(entry.canonical) for entry in entries_of(batch, writer)]
