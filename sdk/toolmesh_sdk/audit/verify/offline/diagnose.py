"""Classifies a change of an export (edit, deletion, insertion, ...) and finds where it starts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from toolmesh_sdk.audit.format.manifest import LEAVES
from toolmesh_sdk.audit.verify.offline.export_folder import ExportFolder
from toolmesh_sdk.audit.verify.offline.export_scan import CLAIMED, DATA, LISTED, NO_HASH, ExportScanResult
from toolmesh_sdk.audit.verify.report import Finding, Kind

_DETAILS = {
    Kind.EDIT: "the record differs from the one that the log signed",
    Kind.DELETION: "a record that the log signed is missing here",
    Kind.INSERTION: "a record that the log never signed is here",
    Kind.REORDERING: "the records are not in the order that the log signed",
    Kind.TRUNCATION: "the records from here on are missing",
}


def leaves_of(folder: ExportFolder, source: str) -> Iterator[bytes]:
    """Yield the leaf hashes of a source again."""
    if source == LISTED:
        yield from folder.leaves()
        return
    for line in folder.lines():
        yield NO_HASH if line is None else line.leaf if source == DATA else line.claimed


def diagnose(folder: ExportFolder, scan: ExportScanResult, authentic: set[str]) -> list[Finding]:
    """Return the findings about the records; `authentic` are the sources that hash to the signed root."""
    if DATA in authentic:
        return _metadata_findings(folder, scan)
    for source in (LISTED, CLAIMED):
        if source in authentic:
            kind, index = classify(folder, scan, source)
            return [_finding_at(folder, kind, index)]
    return [_guess_finding(folder, scan)]


def classify(folder: ExportFolder, scan: ExportScanResult, source: str) -> tuple[Kind, int]:
    """Compare the data with an authentic source; return the kind of the change and the index where it starts."""
    index, mine, theirs = scan.differs[source], scan.tree(DATA).count, scan.tree(source).count
    if index >= mine:
        return Kind.TRUNCATION, index
    if index >= theirs:
        return Kind.INSERTION, index
    here, follows = _leaf_pair(leaves_of(folder, DATA), index)
    there, should_follow = _leaf_pair(leaves_of(folder, source), index)
    missing_later = there in islice(leaves_of(folder, DATA), index + 1, None)
    strange_later = here in islice(leaves_of(folder, source), index + 1, None)
    if missing_later and strange_later:
        by_count = Kind.INSERTION if mine > theirs else Kind.DELETION
        return (Kind.REORDERING if mine == theirs else by_count), index
    if missing_later:
        return Kind.INSERTION, index
    # A record replaced by a copy of a later one, with all others unchanged, is an edit.
    if strange_later and not (mine == theirs and follows == should_follow):
        return Kind.DELETION, index
    return Kind.EDIT, index


def _leaf_pair(leaves: Iterator[bytes], index: int) -> tuple[bytes, bytes]:
    pair = list(islice(leaves, index, index + 2))
    return pair[0], pair[1] if len(pair) > 1 else b""


def _metadata_findings(folder: ExportFolder, scan: ExportScanResult) -> list[Finding]:
    """Check the attributes and hashes beside authentic data."""
    findings = []
    for index, detail in (
        (scan.attributes_differ, "the attributes do not match the record and its location"),
        (scan.differs.get(CLAIMED), "the line claims another leaf hash than its data has"),
    ):
        if index is not None:
            findings.append(_finding_at(folder, Kind.EDIT, index, detail))
    if LISTED in scan.differs:
        detail = f"leaf {scan.differs[LISTED]} of the list does not match the record"
        findings.append(Finding(Kind.FILE, detail, shard=folder.manifest.shard, file=LEAVES))
    return findings


def _guess_finding(folder: ExportFolder, scan: ExportScanResult) -> Finding:
    """Guess the change from inconsistencies within the export: no source hashes to the signed root."""
    count, expected = scan.tree(DATA).count, scan.tree(DATA).expected
    index = scan.differs.get(CLAIMED)
    if index is not None and index < count:
        return _finding_at(folder, Kind.EDIT, index, "the data does not have the leaf hash that its line claims")
    if scan.attributes_differ is not None and scan.claimed_sequence is not None:
        index = scan.attributes_differ
        expected_here = folder.manifest.first_sequence + index
        if scan.claimed_sequence != expected_here:
            return _finding_at(
                folder, Kind.DELETION if scan.claimed_sequence > expected_here else Kind.INSERTION, index
            )
    if count < expected:
        return _finding_at(folder, Kind.TRUNCATION, count)
    if count > expected:
        return _finding_at(folder, Kind.INSERTION, expected)
    return Finding(Kind.REWRITTEN, "the records do not hash to the signed root", shard=folder.manifest.shard)


def _finding_at(folder: ExportFolder, kind: Kind, index: int, detail: str = "") -> Finding:
    sequence = folder.manifest.first_sequence + index
    return Finding(kind, detail or _DETAILS[kind], shard=folder.manifest.shard, sequence=sequence)
