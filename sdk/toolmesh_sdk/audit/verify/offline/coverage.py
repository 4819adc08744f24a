"""Reports which parts of the log an export does not contain.

An export may be a part of the log, so missing parts are remarks; they are findings only if the whole log is expected.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from toolmesh_sdk.audit.format.log_events import Archival
from toolmesh_sdk.audit.format.manifest import MANIFEST
from toolmesh_sdk.audit.verify.offline.shard_check import ShardCheck
from toolmesh_sdk.audit.verify.report import Finding, Kind


def missing_parts(checks: Sequence[ShardCheck], *, chain: bool, last_known: int) -> list[Finding]:
    """Return the missing parts of an export: within its shards and, for a chain, before and after them."""
    findings = [finding for check in checks for finding in _missing_in_shard(check)]
    if not chain or not checks:
        return findings
    first, last = checks[0].manifest, checks[-1].manifest
    if first.shard:
        detail = f"the export begins with shard {first.shard}"
        findings.append(Finding(Kind.SHARD_MISSING, detail, shard=0, sequence=0))
    if last.shard < last_known:
        detail = f"the export ends with shard {last.shard}, and shard {last_known} is known"
        findings.append(Finding(Kind.SHARD_MISSING, detail, shard=last.shard + 1, sequence=last.end_sequence))
    return findings


def last_known_shard(checks: Iterable[ShardCheck], known: Iterable[int]) -> int:
    """Return the highest shard of the known checkpoints and erasure records."""
    return max([*known, *(number for check in checks for number in check.mentioned)], default=0)


def archive_remarks(checks: Sequence[ShardCheck]) -> list[str]:
    """Compare the shards with the recorded archives. A different export of a shard is valid too, so it is only a
    remark, and only if the log has dropped the records."""
    dropped = [each for check in checks for each in check.archived if each.records_dropped]
    return [remark for check in checks for each in dropped if (remark := _archive_remark(check, each))]


def _missing_in_shard(check: ShardCheck) -> list[Finding]:
    m, findings = check.manifest, []
    if m.first_sequence > m.shard_first_sequence:
        detail = f"the export begins with sequence {m.first_sequence}, and the shard with {m.shard_first_sequence}"
        findings.append(Finding(Kind.DELETION, detail, shard=m.shard, sequence=m.shard_first_sequence))
    signed = m.shard_first_sequence + check.note.size if check.note else m.end_sequence
    if m.end_sequence < signed:
        detail = f"the export ends before sequence {m.end_sequence}, and its checkpoint before {signed}"
        findings.append(Finding(Kind.TRUNCATION, detail, shard=m.shard, sequence=m.end_sequence))
    return findings


def _archive_remark(check: ShardCheck, archival: Archival) -> str:
    if check.manifest.shard != archival.shard:
        return ""
    digest = "sha256:" + hashlib.sha256((check.folder.path / MANIFEST).read_bytes()).hexdigest()
    if digest == archival.manifest_digest:
        return ""
    return f"this export of shard {archival.shard} is not the archive that the log recorded: {archival.manifest_digest}"
