"""From "the tree is another one" to what was done, and where it begins."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from toolmesh_sdk.audit.format.manifest import LEAVES
from toolmesh_sdk.audit.verify.export_folder import ExportFolder
from toolmesh_sdk.audit.verify.export_scan import CLAIMED, DATA, LISTED, NO_HASH, ExportScanResult
from toolmesh_sdk.audit.verify.report import Finding, Kind

_WORDS = {
    Kind.EDIT: "the record is not the one that the log signed",
    Kind.DELETION: "a record that the log signed is missing here",
    Kind.INSERTION: "a record that the log never signed stands here",
    Kind.REORDERING: "the records do not stand in the order that the log signed",
    Kind.TRUNCATION: "the records from here on are missing",
}


def leaves_of(folder: ExportFolder, source: str) -> Iterator[bytes]:
    """Yield the leaf hashes of a source, once more."""
    if source == LISTED:
        yield from folder.leaves()
        return
    for line in folder.lines():
        yield NO_HASH if line is None else line.leaf if source == DATA else line.claimed


def diagnose(folder: ExportFolder, scan: ExportScanResult, authentic: set[str]) -> list[Finding]:
    """Say what is wrong with the records, given which sources hash to the signed root."""
    if DATA in authentic:
        return _small_lies(folder, scan)
    for source in (LISTED, CLAIMED):
        if source in authentic:
            kind, index = classify(folder, scan, source)
            return [_at(folder, kind, index)]
    return [_hint(folder, scan)]


def classify(folder: ExportFolder, scan: ExportScanResult, source: str) -> tuple[Kind, int]:
    """Compare the data with a source that is known to be authentic; return what was done and the index where it begins."""
    index, mine, theirs = scan.differs[source], scan.tree(DATA).count, scan.tree(source).count
    if index >= mine:
        return Kind.TRUNCATION, index
    if index >= theirs:
        return Kind.INSERTION, index
    here, follows = _two(leaves_of(folder, DATA), index)
    there, should_follow = _two(leaves_of(folder, source), index)
    missing_later = there in islice(leaves_of(folder, DATA), index + 1, None)
    strange_later = here in islice(leaves_of(folder, source), index + 1, None)
    if missing_later and strange_later:
        by_count = Kind.INSERTION if mine > theirs else Kind.DELETION
        return (Kind.REORDERING if mine == theirs else by_count), index
    if missing_later:
        return Kind.INSERTION, index
    # A copy of a later record in this one's stead, and everything after it in its place, is an edit.
    if strange_later and not (mine == theirs and follows == should_follow):
        return Kind.DELETION, index
    return Kind.EDIT, index


def _two(leaves: Iterator[bytes], index: int) -> tuple[bytes, bytes]:
    found = list(islice(leaves, index, index + 2))
    return found[0], found[1] if len(found) > 1 else b""


def _small_lies(folder: ExportFolder, scan: ExportScanResult) -> list[Finding]:
    """The data is authentic; look at what stands beside it."""
    found = []
    for index, what in (
        (scan.attributes_differ, "the attributes are not those of the record and its place"),
        (scan.differs.get(CLAIMED), "the line names another leaf hash than its data has"),
    ):
        if index is not None:
            found.append(_at(folder, Kind.EDIT, index, what))
    if LISTED in scan.differs:
        detail = f"leaf {scan.differs[LISTED]} of the list is not the record's"
        found.append(Finding(Kind.FILE, detail, shard=folder.manifest.shard, file=LEAVES))
    return found


def _hint(folder: ExportFolder, scan: ExportScanResult) -> Finding:
    """Nothing in the export hashes to the signed root; say what the export itself gives away."""
    count, expected = scan.tree(DATA).count, scan.tree(DATA).expected
    index = scan.differs.get(CLAIMED)
    if index is not None and index < count:
        return _at(folder, Kind.EDIT, index, "the data does not have the leaf hash that its line names")
    if scan.attributes_differ is not None and scan.sequence_there is not None:
        index = scan.attributes_differ
        expected_here = folder.manifest.first_sequence + index
        if scan.sequence_there != expected_here:
            return _at(folder, Kind.DELETION if scan.sequence_there > expected_here else Kind.INSERTION, index)
    if count < expected:
        return _at(folder, Kind.TRUNCATION, count)
    if count > expected:
        return _at(folder, Kind.INSERTION, expected)
    return Finding(Kind.REWRITTEN, "the records do not hash to the signed root", shard=folder.manifest.shard)


def _at(folder: ExportFolder, kind: Kind, index: int, detail: str = "") -> Finding:
    sequence = folder.manifest.first_sequence + index
    return Finding(kind, detail or _WORDS[kind], shard=folder.manifest.shard, sequence=sequence)
