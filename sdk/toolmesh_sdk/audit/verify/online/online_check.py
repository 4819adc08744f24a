"""Verifies the log of a running mesh: shards, checkpoints, records and the pinned state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from random import SystemRandom

from toolmesh.audit.v1 import audit_service_pb2 as pb
from toolmesh.audit.v1 import shard_pb2

from toolmesh_sdk.audit.export.exporter import note_with_witnesses
from toolmesh_sdk.audit.format.log_events import ShardLink
from toolmesh_sdk.audit.format.merkle import consistency_holds, inclusion_holds
from toolmesh_sdk.audit.format.notes import Note, Trust, UnreadableNoteError, VerifierKey
from toolmesh_sdk.audit.remote import RemoteLog
from toolmesh_sdk.audit.verify.online.archive_records import (
    archive_findings,
    ask_log_about_dropped,
    is_dropped,
)
from toolmesh_sdk.audit.verify.online.live_scan import LiveScan
from toolmesh_sdk.audit.verify.online.locate import BLOCK
from toolmesh_sdk.audit.verify.online.pinned_state import PinnedState
from toolmesh_sdk.audit.verify.online.self_check import log_reported_finding
from toolmesh_sdk.audit.verify.online.tree_check import locate_fork, tree_findings
from toolmesh_sdk.audit.verify.report import Finding, Kind, Report, ShardReport
from toolmesh_sdk.errors import ToolmeshError

ALL = 0
_UNEXPLAINED = "the payload is missing and no record of the log explains its erasure"
_UNPINNED = "the key came from the log itself; pin it with --key"


class OnlineCheck:
    """Verifies a log over the network. With `sample`, only that many records of each shard are checked; the rest relies
    on the consistency of the checkpoints."""

    def __init__(
        self,
        log: RemoteLog,
        pinned: PinnedState,
        key: VerifierKey | None = None,
        *,
        known: Sequence[Note] = (),
        sample: int = ALL,
        progress: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._log, self._sample, self._progress = log, sample, progress
        self.key = key or (VerifierKey.parse(pinned.key) if pinned.key else None)
        self._known = [*pinned.checkpoints().values(), *known]
        self.report = Report(subject="")
        self.newest: dict[int, str] = {}
        """The verified checkpoint of each shard, to pin for the next run."""
        self._scans: list[tuple[int, LiveScan]] = []
        self._ends: dict[int, tuple[int, Note]] = {}
        """The first sequence and the last checkpoint of each shard."""

    def run(self) -> Report:
        """Verify the log. Raises ToolmeshError if the mesh cannot be reached."""
        shards = self._log.shards()
        key = self._trusted_key(shards)
        if key is not None:
            self._drop_untrusted(key)
            for before, shard in zip([None, *shards], shards, strict=False):
                self._check_order(before, shard)
                self._check_shard(shard, key)
            self._check_missing_shards(shards)
            self._check_archives(shards)
            self._check_erasures(key)
            self._check_stored_data()
        return self.report

    def _trusted_key(self, shards: list[shard_pb2.Shard]) -> VerifierKey | None:
        if self.key is None:
            written = [shard for shard in shards if shard.tree_size and not is_dropped(shard)]
            if not written:
                self._report_empty(shards)
                return None
            self.key = VerifierKey.parse(self._log.verifier_key(written[-1]))
            self.report.remarks.append(_UNPINNED)
        self.report.subject, self.report.key_id = self.key.log, self.key.key_id
        return self.key

    def _report_empty(self, shards: list[shard_pb2.Shard]) -> None:
        if len(shards) > 1 or self._known:
            self.report.problems.append("the log is empty, but was not before; name its key with --key")
        else:
            self.report.remarks.append("the log is empty")

    def _drop_untrusted(self, key: VerifierKey) -> None:
        untrusted = [each for each in self._known if each.trust(key) is not Trust.SIGNED]
        if untrusted:
            self.report.problems.append("a known checkpoint is not signed by the key")
            self._known = [each for each in self._known if each not in untrusted]

    def _check_order(self, before: shard_pb2.Shard | None, shard: shard_pb2.Shard) -> None:
        number, first = (before.number + 1, before.first_sequence + before.tree_size) if before else (0, 0)
        if shard.number != number:
            self._add_finding(Kind.SHARD_MISSING, f"shard {number} is missing", shard=number, sequence=first)
        elif shard.first_sequence != first:
            self._add_finding(
                Kind.SHARD_SWAPPED, "it does not start where the previous one ends", shard=number, sequence=first
            )

    def _check_shard(self, shard: shard_pb2.Shard, key: VerifierKey) -> None:
        notes = self._notes(shard, key)
        known = [each for each in self._known if each.shard == shard.number]
        if is_dropped(shard):
            self._check_dropped(shard, notes, known)
            return
        if not shard.tree_size:
            # Reload the shard after the checkpoints: the log may get its first record at any moment.
            shard = self._reload(shard)
        if not shard.tree_size:
            self._check_empty(shard, [*notes, *known])
            return
        checked = self._check_sampled(shard, notes, key) if self._sample else self._check_all(shard, notes, key, known)
        if checked is None:
            return
        scan, note = checked
        self._check_known(shard, note, known, scan.roots)
        self._check_longer(shard, note, notes)
        self._check_link(shard, scan.link)
        self._ends[shard.number] = (shard.first_sequence, note)
        self.report.shards.append(_summary(shard, scan, note, sampled=bool(self._sample)))
        if not self.report.findings and scan.header is not None:
            self.newest[shard.number] = note_with_witnesses(scan.header.checkpoint)

    def _check_dropped(self, shard: shard_pb2.Shard, notes: list[Note], known: Sequence[Note]) -> None:
        self.report.remarks.append(f"the records of shard {shard.number} are only in its archive; verify that")
        self._check_known(shard, notes[-1] if notes else None, known, {})
        if notes and notes[-1].size >= shard.tree_size:
            self._ends[shard.number] = (shard.first_sequence, notes[-1])
        else:
            self.report.remarks.append(
                f"no checkpoint covers all of shard {shard.number}; only the next shard links to it"
            )

    def _check_empty(self, shard: shard_pb2.Shard, notes: Sequence[Note]) -> None:
        """Check an empty shard: only the first shard may be empty, because later ones start with a record."""
        signed = max((each.size for each in notes), default=0)
        if signed or shard.number or shard.state != shard_pb2.SHARD_STATE_OPEN:
            detail = f"the log has signed {signed} records of this shard but holds none" if signed else "it is empty"
            self._add_finding(Kind.TRUNCATION, detail, shard=shard.number, sequence=shard.first_sequence)

    def _reload(self, shard: shard_pb2.Shard) -> shard_pb2.Shard:
        return next((each for each in self._log.shards() if each.number == shard.number), shard)

    def _check_all(
        self, shard: shard_pb2.Shard, notes: list[Note], key: VerifierKey, known: Sequence[Note]
    ) -> tuple[LiveScan, Note] | None:
        """Scan all records and compare the tree with every checkpoint."""
        sizes = {note.size for note in (*notes, *known)}
        scan = LiveScan(sizes, every=BLOCK, progress=self._progress)
        scan.take(self._log.export(pb.ExportRecordsRequest(shard=shard.number)))
        note = self._trusted_note(note_with_witnesses(scan.header.checkpoint), shard, key) if scan.header else None
        if note is None:
            return None
        self._scans.append((shard.number, scan))
        self.report.findings += tree_findings(self._log, shard, scan, [*_smaller_than(notes, note), note])
        return scan, note

    def _notes(self, shard: shard_pb2.Shard, key: VerifierKey) -> list[Note]:
        trusted = (
            self._trusted_note(note_with_witnesses(each), shard, key) for each in self._log.checkpoints(shard.number)
        )
        return [note for note in trusted if note is not None]

    def _trusted_note(self, text: str, shard: shard_pb2.Shard, key: VerifierKey) -> Note | None:
        try:
            note = Note.parse(text)
        except UnreadableNoteError as error:
            self._add_finding(Kind.WRONG_SIGNATURE, f"a checkpoint is unreadable: {error}", shard=shard.number)
            return None
        trust = note.trust(key)
        if trust is Trust.WRONG_KEY or note.shard != shard.number:
            detail = f"the checkpoint of size {note.size} is not signed by {key.key_id} for this shard"
            self._add_finding(Kind.WRONG_KEY, detail, shard=shard.number)
        elif trust is Trust.WRONG_SIGNATURE:
            detail = f"the checkpoint of size {note.size} has an invalid signature"
            self._add_finding(Kind.WRONG_SIGNATURE, detail, shard=shard.number)
        else:
            return note
        return None

    def _check_sampled(
        self, shard: shard_pb2.Shard, notes: list[Note], key: VerifierKey
    ) -> tuple[LiveScan, Note] | None:
        """Verify inclusion proofs of sampled records, and consistency proofs between checkpoints."""
        indexes = SystemRandom().sample(range(shard.tree_size), min(self._sample, shard.tree_size))
        scan, note = LiveScan(()), None
        for index in sorted({0, *indexes}):
            first = shard.first_sequence + index
            part = pb.SequenceRange(first_sequence=first, end_sequence=first + 1)
            one = LiveScan(())
            parts = list(self._log.export(pb.ExportRecordsRequest(range=part)))
            one.take(parts)
            note = self._trusted_note(note_with_witnesses(one.header.checkpoint), shard, key) if one.header else None
            if one.header is None or note is None:
                return None
            scan.header, scan.count, scan.link = one.header, scan.count + 1, scan.link if index else one.link
            self._check_one(shard, one, note, key, index, parts[-1].proof)
            self._progress(scan.count)
        if note is None:
            return None
        for older, newer in pairwise([*_smaller_than(notes, note), note]):
            if not self._extends(shard, older, newer):
                detail = f"the checkpoint of size {newer.size} does not extend the one of size {older.size}"
                self._add_finding(Kind.FORK, detail, shard=shard.number)
        return scan, note

    def _check_one(
        self, shard: shard_pb2.Shard, one: LiveScan, note: Note, key: VerifierKey, index: int, proof: pb.ExportProof
    ) -> None:
        sequence = shard.first_sequence + index
        if not one.count:
            self._add_finding(Kind.DELETION, "the record is missing", shard=shard.number, sequence=sequence)
        elif one.unexplained(key, one.explained):
            self._add_finding(Kind.UNEXPLAINED_ERASURE, _UNEXPLAINED, shard=shard.number, sequence=sequence)
        elif not inclusion_holds(index, note.size, one.last_leaf, list(proof.first_hashes), note.root):
            self._add_finding(Kind.EDIT, "the record is not in the signed tree", shard=shard.number, sequence=sequence)

    def _extends(self, shard: shard_pb2.Shard, older: Note, newer: Note) -> bool:
        if older.size == newer.size:
            return older.root == newer.root
        try:
            proof = self._log.consistency(shard.number, older.size, newer.size)
        except ToolmeshError as error:
            self.report.problems.append(
                f"no proof from size {older.size} to {newer.size} of shard {shard.number}: {error}"
            )
            return True
        return consistency_holds(older.size, newer.size, list(proof.hashes), older.root, newer.root)

    def _check_known(
        self, shard: shard_pb2.Shard, note: Note | None, known: Sequence[Note], roots: dict[int, bytes]
    ) -> None:
        for checkpoint in known:
            if note is None or note.size < checkpoint.size:
                size = note.size if note else 0
                detail = f"a checkpoint of size {checkpoint.size} is known, but the log now ends at {size}"
                sequence = shard.first_sequence + size
                self._add_finding(Kind.TRUNCATION, detail, shard=shard.number, sequence=sequence)
            elif checkpoint.size == note.size and checkpoint.root != note.root:
                detail = f"the known checkpoint has the same size {checkpoint.size} but another root"
                self._add_fork(shard, checkpoint, roots, known, detail)
            elif checkpoint.root != roots.get(checkpoint.size, checkpoint.root):
                detail = f"the known checkpoint of size {checkpoint.size} is not a prefix of this log"
                self._add_fork(shard, checkpoint, roots, known, detail)
            elif checkpoint.size not in roots and not self._extends(shard, checkpoint, note):
                detail = f"the log does not extend the known checkpoint of size {checkpoint.size}"
                self._add_finding(Kind.FORK, detail, shard=shard.number)

    def _add_fork(
        self, shard: shard_pb2.Shard, bad: Note, roots: dict[int, bytes], known: Sequence[Note], detail: str
    ) -> None:
        """Add the finding, located where the scan has the roots to compare. Only known checkpoints bound it: the log
        may have signed a shorter one after it removed records."""
        if bad.size not in roots:
            self._add_finding(Kind.FORK, detail, shard=shard.number)
            return
        matching = [each for each in known if each.size < bad.size and roots.get(each.size) == each.root]
        signed = [*sorted(matching, key=lambda each: each.size), bad]
        self.report.findings.append(locate_fork(self._log, shard, roots, signed, detail))

    def _check_longer(self, shard: shard_pb2.Shard, note: Note, notes: list[Note]) -> None:
        # The checkpoints were listed before this one was made, so none of them can be larger.
        longest = max((each.size for each in notes), default=0)
        if longest > note.size:
            detail = f"the log has signed {longest} records of this shard but now claims fewer"
            sequence = shard.first_sequence + note.size
            self._add_finding(Kind.TRUNCATION, detail, shard=shard.number, sequence=sequence)
        if shard.tree_size > note.size:
            self.report.remarks.append(f"the records of shard {shard.number} beyond size {note.size} are not signed")

    def _check_link(self, shard: shard_pb2.Shard, link: ShardLink | None) -> None:
        if shard.number == 0:
            return
        first, before = self._ends.get(shard.number - 1, (0, None))
        expected = (shard.number - 1, shard.first_sequence)
        if link is None or (link.number, link.first_sequence + link.size) != expected:
            detail = "it does not start with the record that links to the previous shard"
            self._add_finding(Kind.SHARD_SWAPPED, detail, shard=shard.number, sequence=shard.first_sequence)
        elif before is not None and (before.size, before.root) != (link.size, link.root):
            detail = "the next shard records another root for this one"
            self._add_finding(Kind.SHARD_SWAPPED, detail, shard=before.shard, sequence=first)

    def _check_archives(self, shards: list[shard_pb2.Shard]) -> None:
        """Check archives after all shards: an archive is recorded in a later shard."""
        if self._sample:
            results = [ask_log_about_dropped(self._log, shard) for shard in shards if is_dropped(shard)]
        else:
            results = [archive_findings(shards, self._scans)]
        for findings, remarks in results:
            self.report.findings += findings
            self.report.remarks += remarks

    def _check_stored_data(self) -> None:
        """Ask the log about defects that no export shows; skip shards with findings."""
        bad = {finding.shard for finding in self.report.findings}
        for number, scan in self._scans:
            if number not in bad and scan.header is not None:
                first = scan.header.shard.first_sequence
                finding = log_reported_finding(self._log, number, first, first + scan.count)
                self.report.findings += [finding] if finding else []

    def _check_erasures(self, key: VerifierKey) -> None:
        """Check erasures last: they may be recorded in any later shard."""
        reported = {sequence: leaf for _, scan in self._scans for sequence, leaf in scan.explained.items()}
        for shard, scan in self._scans:
            for sequence in scan.unexplained(key, reported):
                self._add_finding(Kind.UNEXPLAINED_ERASURE, _UNEXPLAINED, shard=shard, sequence=sequence)

    def _check_missing_shards(self, shards: list[shard_pb2.Shard]) -> None:
        present = {shard.number for shard in shards}
        for number in sorted({each.shard for each in self._known} - present):
            self._add_finding(
                Kind.SHARD_MISSING, "a checkpoint of this shard is known, but the shard is missing", shard=number
            )

    def _add_finding(self, kind: Kind, detail: str, *, shard: int, sequence: int | None = None) -> None:
        self.report.findings.append(Finding(kind, detail, shard=shard, sequence=sequence))


def _smaller_than(notes: Sequence[Note], note: Note) -> list[Note]:
    return [each for each in notes if each.size < note.size]


def _summary(shard: shard_pb2.Shard, scan: LiveScan, note: Note, *, sampled: bool) -> ShardReport:
    return ShardReport(
        number=shard.number,
        first_sequence=shard.first_sequence,
        end_sequence=shard.first_sequence + shard.tree_size,
        tree_size=note.size,
        root_hash=note.root.hex(),
        records=scan.count,
        erased=len(scan.erased),
        sampled=sampled,
    )
