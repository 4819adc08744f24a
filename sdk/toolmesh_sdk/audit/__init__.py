"""Exports and verifies the audit log, without any code of the audit service.

`verify_export` needs a folder and the public key. The Merkle tree (RFC 6962), signed notes (C2SP) and canonical JSON
(RFC 8785) are implemented here a second time, from the standards.
"""

from toolmesh_sdk.audit.format.notes import Note, UnreadableNoteError, VerifierKey
from toolmesh_sdk.audit.verify.offline.verify_export import verify_export, verify_speed
from toolmesh_sdk.audit.verify.report import Finding, Kind, Report, ShardReport

__all__ = [
    "Finding",
    "Kind",
    "Note",
    "Report",
    "ShardReport",
    "UnreadableNoteError",
    "VerifierKey",
    "verify_export",
    "verify_speed",
]
