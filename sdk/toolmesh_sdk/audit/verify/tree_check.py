"""Compares the records of a shard, as a running log sends them, with what the log has signed about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from toolmesh.audit.v1 import audit_service_pb2 as pb
from toolmesh.audit.v1 import shard_pb2

from toolmesh_sdk.audit.format.notes import Note
from toolmesh_sdk.audit.remote import RemoteLog
from toolmesh_sdk.audit.verify.live_scan import LiveScan
from toolmesh_sdk.audit.verify.locate import BLOCK, guess_change, narrow_suspect
from toolmesh_sdk.audit.verify.report import Finding, Kind


def tree_findings(log: RemoteLog, shard: shard_pb2.Shard, scan: LiveScan, notes: Sequence[Note]) -> list[Finding]:
    """Return what is wrong with a shard's records. `notes` are its trusted checkpoints; the last is the one that the scan must
    end with."""
    if scan.findings:
        return [replace(finding, shard=shard.number) for finding in scan.findings]
    bad = [note for note in notes if note.size <= scan.count and scan.roots.get(note.size) != note.root]
    if scan.count < notes[-1].size and not bad:
        return [_short(log, shard, scan.count)]
    if bad and scan.count >= notes[-1].size and bad[-1] is not notes[-1]:
        detail = f"the signed checkpoint of size {bad[0].size} is not the beginning of this log"
        return [Finding(Kind.FORK, detail, shard=shard.number)]
    return [_located(log, shard, scan, notes)] if bad else []


def _short(log: RemoteLog, shard: shard_pb2.Shard, count: int) -> Finding:
    """Records are missing, and no signed root contradicts those that are there. If the log itself knows of a change before its
    end, then one was taken out and the others moved up; else the last ones are gone."""
    first, end = shard.first_sequence, shard.first_sequence + count
    bad = log.verify_range(first, first + count - count % BLOCK)
    if bad is not None and bad.end_sequence <= end:
        detail = f"the log says itself that it was changed between sequence {bad.sequence} and {bad.end_sequence - 1}"
        return Finding(Kind.DELETION, detail, shard=shard.number, sequence=bad.sequence)
    return Finding(Kind.TRUNCATION, "the records from here on are missing", shard=shard.number, sequence=end)


def _located(log: RemoteLog, shard: shard_pb2.Shard, scan: LiveScan, notes: Sequence[Note]) -> Finding:
    first = shard.first_sequence
    suspect = narrow_suspect(log, shard.number, scan.roots, notes)
    again = LiveScan((), keep=range(suspect.first, suspect.end + 1))
    again.take(log.export(pb.ExportRecordsRequest(shard=shard.number)))
    short = scan.count < notes[-1].size
    found = None if short else guess_change(again.before_collected, again.kept, suspect)
    if found is not None:
        kind, index = found
        return Finding(kind, "undoing it gives what was signed", shard=shard.number, sequence=first + index)
    kind = Kind.DELETION if short else Kind.EDIT
    detail = f"the first change is between sequence {first + suspect.first} and {first + suspect.end - 1}"
    return Finding(kind, detail, shard=shard.number, sequence=first + suspect.first)
