"""How much of the log an export holds.

A part of the log is as good as the whole of it, and every shortened export is a part. What is left out is therefore said, and
is a finding only for a verifier who expects everything.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from toolmesh_sdk.audit.format.log_events import Archival
from toolmesh_sdk.audit.format.manifest import MANIFEST
from toolmesh_sdk.audit.verify.report import Finding, Kind
from toolmesh_sdk.audit.verify.shard_check import ShardCheck


def left_out(checks: Sequence[ShardCheck], *, chain: bool, last_known: int) -> list[Finding]:
    """Return what an export lacks: of its shards and, if it is meant as a chain of them, before and behind them."""
    found = [finding for check in checks for finding in _of_shard(check)]
    if not chain or not checks:
        return found
    first, last = checks[0].manifest, checks[-1].manifest
    if first.shard:
        detail = f"the export begins with shard {first.shard}"
        found.append(Finding(Kind.SHARD_MISSING, detail, shard=0, sequence=0))
    if last.shard < last_known:
        detail = f"the export ends with shard {last.shard}, and shard {last_known} is known"
        found.append(Finding(Kind.SHARD_MISSING, detail, shard=last.shard + 1, sequence=last.end_sequence))
    return found


def last_known_shard(checks: Iterable[ShardCheck], known: Iterable[int]) -> int:
    """Return the highest shard that a checkpoint which the verifier kept, or the explanation of an erasure, speaks of."""
    return max([*known, *(number for check in checks for number in check.mentioned)], default=0)


def archive_remarks(checks: Sequence[ShardCheck]) -> list[str]:
    """Compare the shards with the archives that later ones note. Another export of a shard is as good as its archive, so one
    that differs is only named, and only where the log has dropped the records and the archive should be all there is."""
    noted = [each for check in checks for each in check.archived if each.records_dropped]
    return [remark for check in checks for each in noted if (remark := _archive_remark(check, each))]


def _of_shard(check: ShardCheck) -> list[Finding]:
    m, found = check.manifest, []
    if m.first_sequence > m.shard_first_sequence:
        detail = f"the export begins with sequence {m.first_sequence}, and the shard with {m.shard_first_sequence}"
        found.append(Finding(Kind.DELETION, detail, shard=m.shard, sequence=m.shard_first_sequence))
    signed = m.shard_first_sequence + check.note.size if check.note else m.end_sequence
    if m.end_sequence < signed:
        detail = f"the export ends before sequence {m.end_sequence}, and its checkpoint before {signed}"
        found.append(Finding(Kind.TRUNCATION, detail, shard=m.shard, sequence=m.end_sequence))
    return found


def _archive_remark(check: ShardCheck, noted: Archival) -> str:
    if check.manifest.shard != noted.shard:
        return ""
    digest = "sha256:" + hashlib.sha256((check.folder.path / MANIFEST).read_bytes()).hexdigest()
    if digest == noted.manifest_digest:
        return ""
    return f"this export of shard {noted.shard} is not the archive that the log noted: {noted.manifest_digest}"
