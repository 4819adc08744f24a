"""Verifies an export with nothing but the public key: no network, no database, none of the service's code."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from toolmesh_sdk.audit.format.manifest import (
    INDEX,
    MANIFEST,
    TamperedManifestError,
    UnreadableExportError,
    read_index,
    read_manifest,
)
from toolmesh_sdk.audit.format.notes import Note, Trust, VerifierKey
from toolmesh_sdk.audit.verify.coverage import archive_remarks, last_known_shard, left_out
from toolmesh_sdk.audit.verify.export_folder import ExportFolder
from toolmesh_sdk.audit.verify.report import Finding, Kind, Report
from toolmesh_sdk.audit.verify.shard_check import ShardCheck


def verify_export(
    path: Path,
    key: VerifierKey,
    known: Sequence[Note] = (),
    witness: VerifierKey | None = None,
    *,
    whole: bool = False,
) -> Report:
    """Verify an export of one shard, or of several. `known` are checkpoints that the verifier kept from earlier; with a
    witness, its co-signature must be on every checkpoint. With `whole`, one that is not a whole shard, or whole shards from the
    first on, is truncated; without, the report only remarks it. Never raises for what is in the folder."""
    report = Report(subject=str(path), key_id=key.key_id)
    usable = _usable(known, key, report)
    try:
        folders = _folders(path, report)
    except UnreadableExportError as error:
        report.problems.append(str(error))
        return report
    except TamperedManifestError as error:
        report.findings.append(Finding(Kind.MANIFEST, str(error), file=INDEX))
        return report
    if not folders and not report.findings:
        report.problems.append("the index names no export")
    checks = [ShardCheck(folder, key, usable) for folder in folders]
    for check in checks:
        check.run()
        report.findings += check.findings
        report.problems += check.problems
        report.shards += [check.report] if check.report else []
        if witness is not None and check.note is not None and not check.note.witnessed_by(witness):
            detail = f"{witness.name} has not co-signed the checkpoint"
            report.findings.append(Finding(Kind.WRONG_SIGNATURE, detail, shard=check.manifest.shard))
    report.findings += chain_findings(checks)
    _say_extent(checks, usable, report, whole=whole)
    for shard in sorted({note.shard for note in usable} - {check.manifest.shard for check in checks}):
        report.remarks.append(f"a checkpoint of shard {shard} is known, and the export holds nothing of that shard")
    return report


def _say_extent(checks: Sequence[ShardCheck], known: Sequence[Note], report: Report, *, whole: bool) -> None:
    alone = len(checks) == 1 and (Path(report.subject) / MANIFEST).exists()
    last = last_known_shard(checks, [note.shard for note in known])
    said = {(finding.kind, finding.sequence) for finding in report.findings}
    lacking = [
        each for each in left_out(checks, chain=not alone, last_known=last) if (each.kind, each.sequence) not in said
    ]
    if whole:
        report.findings += lacking
    else:
        report.remarks += [f"a part of the log: {finding.detail} (shard {finding.shard})" for finding in lacking]
    report.remarks += archive_remarks(checks)


def verify_speed(path: Path, key: VerifierKey) -> float:
    """Return how many records of an export are verified in a second, on one core. Raises ValueError for a bad export."""
    started = time.perf_counter()
    report = verify_export(path, key)
    if report.exit_code:
        raise ValueError(f"the export is not good: {report.to_dict()}")
    return report.records / (time.perf_counter() - started)


def chain_findings(checks: Sequence[ShardCheck]) -> list[Finding]:
    """Check that each shard names the one before it as it is, and that none is missing between them."""
    found = []
    for before, after in pairwise(checks):
        shard, first = after.manifest.shard, after.manifest.shard_first_sequence
        if shard != before.manifest.shard + 1:
            detail = f"shard {before.manifest.shard + 1} is missing between {before.manifest.shard} and {shard}"
            place = before.manifest.end_sequence
            found.append(Finding(Kind.SHARD_MISSING, detail, shard=before.manifest.shard + 1, sequence=place))
        elif after.link is not None and before.note is not None:
            found += _link_findings(before, after, before.note)
        if after.manifest.first_sequence != first and shard == before.manifest.shard + 1:
            detail = "the beginning of the shard is missing"
            found.append(Finding(Kind.DELETION, detail, shard=shard, sequence=first))
    return found


def _link_findings(before: ShardCheck, after: ShardCheck, note: Note) -> list[Finding]:
    link, shard = after.link, before.manifest.shard
    assert link is not None
    if note.size < link.size or before.manifest.end_sequence < link.first_sequence + link.size:
        detail = f"the next shard says that this one holds {link.size} records"
        return [Finding(Kind.TRUNCATION, detail, shard=shard, sequence=before.manifest.end_sequence)]
    if (note.size, note.root) != (link.size, link.root):
        detail = "the next shard names another root for this one"
        return [Finding(Kind.SHARD_SWAPPED, detail, shard=shard, sequence=before.manifest.shard_first_sequence)]
    return []


def _folders(path: Path, report: Report) -> list[ExportFolder]:
    if (path / MANIFEST).exists() or not (path / INDEX).exists():
        found = [_folder(path, report)]
    else:
        found = [_indexed(path / name, name, digest, report) for name, digest in read_index(path).items()]
        for each in sorted(path.iterdir()):
            if each.name != INDEX and each.name not in read_index(path):
                report.findings.append(Finding(Kind.FILE, "the index does not know it", file=each.name))
    return sorted((each for each in found if each is not None), key=lambda each: each.manifest.shard)


def _indexed(path: Path, name: str, digest: str, report: Report) -> ExportFolder | None:
    try:
        payload = (path / MANIFEST).read_bytes()
    except OSError:
        report.findings.append(Finding(Kind.SHARD_MISSING, "the export that the index names is not there", file=name))
        return None
    if "sha256:" + hashlib.sha256(payload).hexdigest() != digest:
        detail = "the manifest is not the one that the index names"
        report.findings.append(Finding(Kind.MANIFEST, detail, file=f"{name}/{MANIFEST}"))
    return _folder(path, report)


def _folder(path: Path, report: Report) -> ExportFolder | None:
    try:
        return ExportFolder(path, read_manifest(path))
    except TamperedManifestError as error:
        report.findings.append(Finding(Kind.MANIFEST, str(error), file=MANIFEST))
        return None


def _usable(known: Sequence[Note], key: VerifierKey, report: Report) -> list[Note]:
    usable = [note for note in known if note.trust(key) is Trust.SIGNED]
    if len(usable) < len(known):
        report.problems.append("a checkpoint that was given as known is not signed by the key")
    return usable
