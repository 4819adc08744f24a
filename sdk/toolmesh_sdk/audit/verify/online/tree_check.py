"""Compares the records of a running log with its signed checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from toolmesh.audit.v1 import audit_service_pb2 as pb
from toolmesh.audit.v1 import shard_pb2

from toolmesh_sdk.audit.format.merkle import Frontier
from toolmesh_sdk.audit.format.notes import Note
from toolmesh_sdk.audit.remote import RemoteLog
from toolmesh_sdk.audit.verify.online.live_scan import LiveScan
from toolmesh_sdk.audit.verify.online.locate import (
    BLOCK,
    SuspectRange,
    bound_by_checkpoints,
    guess_change,
    narrow_suspect,
)
from toolmesh_sdk.audit.verify.report import Finding, Kind


def tree_findings(log: RemoteLog, shard: shard_pb2.Shard, scan: LiveScan, notes: Sequence[Note]) -> list[Finding]:
    """Return the findings about the records of a shard. `notes` are its trusted checkpoints; the scan must end with the
    last one."""
    if scan.findings:
        return [replace(finding, shard=shard.number) for finding in scan.findings]
    bad = [note for note in notes if note.size <= scan.count and scan.roots.get(note.size) != note.root]
    if scan.count < notes[-1].size and not bad:
        return [_missing_records(log, shard, scan.count)]
    if bad and scan.count >= notes[-1].size and bad[-1] is not notes[-1]:
        detail = f"the signed checkpoint of size {bad[0].size} is not a prefix of this log"
        return [locate_fork(log, shard, scan.roots, notes, detail)]
    return [_locate_change(log, shard, scan, notes)] if bad else []


def _missing_records(log: RemoteLog, shard: shard_pb2.Shard, count: int) -> Finding:
    """Classify missing records: a deletion if the log itself reports a change before its end, else a truncation."""
    first, end = shard.first_sequence, shard.first_sequence + count
    bad = log.verify_range(first, first + count - count % BLOCK)
    if bad is not None and bad.end_sequence <= end:
        detail = f"the log itself reports a change between sequence {bad.sequence} and {bad.end_sequence - 1}"
        return Finding(Kind.DELETION, detail, shard=shard.number, sequence=bad.sequence)
    return Finding(Kind.TRUNCATION, "the records from here on are missing", shard=shard.number, sequence=end)


def locate_fork(
    log: RemoteLog, shard: shard_pb2.Shard, roots: Mapping[int, bytes], notes: Sequence[Note], detail: str
) -> Finding:
    """Locate the change of a log that went on signing after it. Its own proofs follow the changed records, so only the
    signed checkpoints tell: the change is behind the last that fits and before the end of the first that does not."""
    suspect = bound_by_checkpoints(roots, notes)
    first = shard.first_sequence
    detail += f"; the first change is between sequence {first + suspect.first} and {first + suspect.end - 1}"
    change = guess_change(*_collect(log, shard, suspect), suspect)
    if change is None:
        return Finding(Kind.FORK, detail, shard=shard.number, sequence=first + suspect.first)
    kind, index = change
    detail += f"; undoing one {kind.value} at sequence {first + index} restores the signed root"
    return Finding(Kind.FORK, detail, shard=shard.number, sequence=first + index)


def _collect(log: RemoteLog, shard: shard_pb2.Shard, suspect: SuspectRange) -> tuple[Frontier, list[bytes]]:
    """Return the tree before a suspect range, and its leaves with one more if there is one."""
    scan = LiveScan((), collect=range(suspect.first, suspect.end + 1))
    scan.take(log.export(pb.ExportRecordsRequest(shard=shard.number)))
    return scan.before_collected, scan.collected


def _locate_change(log: RemoteLog, shard: shard_pb2.Shard, scan: LiveScan, notes: Sequence[Note]) -> Finding:
    first = shard.first_sequence
    suspect = narrow_suspect(log, shard.number, scan.roots, notes)
    short = scan.count < notes[-1].size
    change = None if short else guess_change(*_collect(log, shard, suspect), suspect)
    if change is not None:
        kind, index = change
        return Finding(kind, "undoing it restores the signed root", shard=shard.number, sequence=first + index)
    kind = Kind.DELETION if short else Kind.EDIT
    detail = f"the first change is between sequence {first + suspect.first} and {first + suspect.end - 1}"
    return Finding(kind, detail, shard=shard.number, sequence=first + suspect.first)
