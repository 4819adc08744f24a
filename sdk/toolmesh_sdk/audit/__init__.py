"""Evidence, checked from outside: exports of the audit log, and a verifier that shares no code with the service.

`verify_export` needs a folder and the public key. What it rests on is written a second time here, from the standards: the
Merkle tree (RFC 6962), signed notes (C2SP), canonical JSON (RFC 8785).
"""

from toolmesh_sdk.audit.format.notes import Note, UnreadableNoteError, VerifierKey
from toolmesh_sdk.audit.verify.offline import verify_export, verify_speed
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
