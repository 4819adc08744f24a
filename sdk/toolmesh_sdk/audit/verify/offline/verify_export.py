"""Verifies an export offline, with only the public key."""

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
from toolmesh_sdk.audit.verify.offline.coverage import archive_remarks, last_known_shard, missing_parts
from toolmesh_sdk.audit.verify.offline.export_folder import ExportFolder
from toolmesh_sdk.audit.verify.offline.shard_check import ShardCheck
from toolmesh_sdk.audit.verify.report import Finding, Kind, Report


def verify_export(
    path: Path,
    key: VerifierKey,
    known: Sequence[Note] = (),
    witness: VerifierKey | None = None,
    *,
    whole: bool = False,
) -> Report:
    """Verify an export of one or more shards. `known` are earlier checkpoints of the verifier. A witness must have
    co-signed every checkpoint. With `whole`, an export without complete shards from the first on is truncated;
    otherwise this is a remark. Never raises for the content of the folder."""
    report = Report(subject=str(path), key_id=key.key_id)
    trusted = _trusted_notes(known, key, report)
    try:
        folders = _folders(path, report)
    except UnreadableExportError as error:
        report.problems.append(str(error))
        return report
    except TamperedManifestError as error:
        report.findings.append(Finding(Kind.MANIFEST, str(error), file=INDEX))
        return report
    if not folders and not report.findings:
        report.problems.append("the index lists no export")
    checks = [ShardCheck(folder, key, trusted) for folder in folders]
    for check in checks:
        check.run()
        report.findings += check.findings
        report.problems += check.problems
        report.shards += [check.report] if check.report else []
        if witness is not None and check.note is not None and not check.note.witnessed_by(witness):
            detail = f"{witness.name} has not co-signed the checkpoint"
            report.findings.append(Finding(Kind.WRONG_SIGNATURE, detail, shard=check.manifest.shard))
    report.findings += chain_findings(checks)
    _report_coverage(checks, trusted, report, whole=whole)
    for shard in sorted({note.shard for note in trusted} - {check.manifest.shard for check in checks}):
        report.remarks.append(f"a checkpoint of shard {shard} is known, and the export holds nothing of that shard")
    return report


def _report_coverage(checks: Sequence[ShardCheck], known: Sequence[Note], report: Report, *, whole: bool) -> None:
    alone = len(checks) == 1 and (Path(report.subject) / MANIFEST).exists()
    last = last_known_shard(checks, [note.shard for note in known])
    reported = {(finding.kind, finding.sequence) for finding in report.findings}
    missing = [
        part
        for part in missing_parts(checks, chain=not alone, last_known=last)
        if (part.kind, part.sequence) not in reported
    ]
    if whole:
        report.findings += missing
    else:
        report.remarks += [f"a part of the log: {finding.detail} (shard {finding.shard})" for finding in missing]
    report.remarks += archive_remarks(checks)


def verify_speed(path: Path, key: VerifierKey) -> float:
    """Return the number of records verified per second, on one core. Raises ValueError for an invalid export."""
    started = time.perf_counter()
    report = verify_export(path, key)
    if report.exit_code:
        raise ValueError(f"the export is invalid: {report.to_dict()}")
    return report.records / (time.perf_counter() - started)


def chain_findings(checks: Sequence[ShardCheck]) -> list[Finding]:
    """Check that each shard links to the previous one, and that none is missing."""
    findings = []
    for before, after in pairwise(checks):
        shard, first = after.manifest.shard, after.manifest.shard_first_sequence
        if shard != before.manifest.shard + 1:
            detail = f"shard {before.manifest.shard + 1} is missing between {before.manifest.shard} and {shard}"
            sequence = before.manifest.end_sequence
            findings.append(Finding(Kind.SHARD_MISSING, detail, shard=before.manifest.shard + 1, sequence=sequence))
        elif after.link is not None and before.note is not None:
            findings += _link_findings(before, after, before.note)
        if after.manifest.first_sequence != first and shard == before.manifest.shard + 1:
            detail = "the beginning of the shard is missing"
            findings.append(Finding(Kind.DELETION, detail, shard=shard, sequence=first))
    return findings


def _link_findings(before: ShardCheck, after: ShardCheck, note: Note) -> list[Finding]:
    link, shard = after.link, before.manifest.shard
    assert link is not None
    if note.size < link.size or before.manifest.end_sequence < link.first_sequence + link.size:
        detail = f"the next shard records that this one holds {link.size} records"
        return [Finding(Kind.TRUNCATION, detail, shard=shard, sequence=before.manifest.end_sequence)]
    if (note.size, note.root) != (link.size, link.root):
        detail = "the next shard records another root for this one"
        return [Finding(Kind.SHARD_SWAPPED, detail, shard=shard, sequence=before.manifest.shard_first_sequence)]
    return []


def _folders(path: Path, report: Report) -> list[ExportFolder]:
    if (path / MANIFEST).exists() or not (path / INDEX).exists():
        folders = [_folder(path, report)]
    else:
        folders = [_indexed(path / name, name, digest, report) for name, digest in read_index(path).items()]
        for entry in sorted(path.iterdir()):
            if entry.name != INDEX and entry.name not in read_index(path):
                report.findings.append(Finding(Kind.FILE, "the index does not list it", file=entry.name))
    return sorted((folder for folder in folders if folder is not None), key=lambda folder: folder.manifest.shard)


def _indexed(path: Path, name: str, digest: str, report: Report) -> ExportFolder | None:
    try:
        payload = (path / MANIFEST).read_bytes()
    except OSError:
        report.findings.append(Finding(Kind.SHARD_MISSING, "the export that the index lists is missing", file=name))
        return None
    if "sha256:" + hashlib.sha256(payload).hexdigest() != digest:
        detail = "the manifest differs from the index"
        report.findings.append(Finding(Kind.MANIFEST, detail, file=f"{name}/{MANIFEST}"))
    return _folder(path, report)


def _folder(path: Path, report: Report) -> ExportFolder | None:
    try:
        return ExportFolder(path, read_manifest(path))
    except TamperedManifestError as error:
        report.findings.append(Finding(Kind.MANIFEST, str(error), file=MANIFEST))
        return None


def _trusted_notes(known: Sequence[Note], key: VerifierKey, report: Report) -> list[Note]:
    trusted = [note for note in known if note.trust(key) is Trust.SIGNED]
    if len(trusted) < len(known):
        report.problems.append("a known checkpoint is not signed by the key")
    return trusted
