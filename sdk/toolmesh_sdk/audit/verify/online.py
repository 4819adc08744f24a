"""Verifies the log of a running mesh: every shard, every checkpoint, every record, and what was kept from the last time."""

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
from toolmesh_sdk.audit.verify.archive_records import archive_findings, ask_log_about_dropped, is_dropped
from toolmesh_sdk.audit.verify.live_scan import LiveScan
from toolmesh_sdk.audit.verify.locate import BLOCK
from toolmesh_sdk.audit.verify.pinned_state import PinnedState
from toolmesh_sdk.audit.verify.report import Finding, Kind, Report, ShardReport
from toolmesh_sdk.audit.verify.self_check import log_reported_finding
from toolmesh_sdk.audit.verify.tree_check import tree_findings
from toolmesh_sdk.errors import ToolmeshError

ALL = 0
_GONE = "the payload is missing and no record of the log says who erased it"
_UNPINNED = "the key was taken from the log itself; pin it with --key"


class OnlineCheck:
    """Verifies a log over the network. With `sample`, only so many records of each shard are looked at, and the rest is trusted to
    the consistency of the checkpoints."""

    def __init__(
        self,
        log: RemoteLog,
        kept: PinnedState,
        key: VerifierKey | None = None,
        *,
        known: Sequence[Note] = (),
        sample: int = ALL,
        progress: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._log, self._sample, self._progress = log, sample, progress
        self.key = key or (VerifierKey.parse(kept.key) if kept.key else None)
        self._known = [*kept.checkpoints().values(), *known]
        self.report = Report(subject="")
        self.newest: dict[int, str] = {}
        """The checkpoint of each shard that was verified now; what to keep for the next time."""
        self._scans: list[tuple[int, LiveScan]] = []
        self._ends: dict[int, tuple[int, Note]] = {}
        """Where each shard begins, and the checkpoint that it ends with."""

    def run(self) -> Report:
        """Verify. Raises ToolmeshError when the mesh cannot be asked."""
        shards = self._log.shards()
        key = self._trusted_key(shards)
        if key is not None:
            self._drop_strange(key)
            for before, shard in zip([None, *shards], shards, strict=False):
                self._check_order(before, shard)
                self._check_shard(shard, key)
            self._check_forgotten(shards)
            self._check_archives(shards)
            self._check_erasures(key)
            self._ask_log()
        return self.report

    def _trusted_key(self, shards: list[shard_pb2.Shard]) -> VerifierKey | None:
        if self.key is None:
            written = [shard for shard in shards if shard.tree_size and not is_dropped(shard)]
            if not written:
                self._say_empty(shards)
                return None
            self.key = VerifierKey.parse(self._log.verifier_key(written[-1]))
            self.report.remarks.append(_UNPINNED)
        self.report.subject, self.report.key_id = self.key.log, self.key.key_id
        return self.key

    def _say_empty(self, shards: list[shard_pb2.Shard]) -> None:
        if len(shards) > 1 or self._known:
            self.report.problems.append("the log holds nothing now, and held something; say whose it was with --key")
        else:
            self.report.remarks.append("the log is empty")

    def _drop_strange(self, key: VerifierKey) -> None:
        strange = [each for each in self._known if each.trust(key) is not Trust.SIGNED]
        if strange:
            self.report.problems.append("a checkpoint that was given as known is not signed by the key")
            self._known = [each for each in self._known if each not in strange]

    def _check_order(self, before: shard_pb2.Shard | None, shard: shard_pb2.Shard) -> None:
        number, first = (before.number + 1, before.first_sequence + before.tree_size) if before else (0, 0)
        if shard.number != number:
            self._find(Kind.SHARD_MISSING, f"shard {number} is missing", shard=number, sequence=first)
        elif shard.first_sequence != first:
            self._find(Kind.SHARD_SWAPPED, "it does not begin where the one before ends", shard=number, sequence=first)

    def _check_shard(self, shard: shard_pb2.Shard, key: VerifierKey) -> None:
        notes = self._notes(shard, key)
        known = [each for each in self._known if each.shard == shard.number]
        if is_dropped(shard):
            self._check_dropped(shard, notes, known)
            return
        if not shard.tree_size:
            # Asked again, now that the checkpoints are known: a log may take its first record at any moment.
            shard = self._again(shard)
        if not shard.tree_size:
            self._check_empty(shard, [*notes, *known])
            return
        looked = self._check_sampled(shard, notes, key) if self._sample else self._check_all(shard, notes, key, known)
        if looked is None:
            return
        scan, note = looked
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
            self.report.remarks.append(f"no checkpoint covers all of shard {shard.number}; only the next one names it")

    def _check_empty(self, shard: shard_pb2.Shard, notes: Sequence[Note]) -> None:
        """Only a log that was never written to holds nothing: every later shard begins with the record that opened it."""
        signed = max((each.size for each in notes), default=0)
        if signed or shard.number or shard.state != shard_pb2.SHARD_STATE_OPEN:
            detail = (
                f"the log has signed {signed} records of this shard and holds none" if signed else "it holds nothing"
            )
            self._find(Kind.TRUNCATION, detail, shard=shard.number, sequence=shard.first_sequence)

    def _again(self, shard: shard_pb2.Shard) -> shard_pb2.Shard:
        return next((each for each in self._log.shards() if each.number == shard.number), shard)

    def _check_all(
        self, shard: shard_pb2.Shard, notes: list[Note], key: VerifierKey, known: Sequence[Note]
    ) -> tuple[LiveScan, Note] | None:
        """Grow the tree from every record and compare it with every checkpoint."""
        sizes = {note.size for note in (*notes, *known)}
        scan = LiveScan(sizes, every=BLOCK, progress=self._progress)
        scan.take(self._log.export(pb.ExportRecordsRequest(shard=shard.number)))
        note = self._trusted_note(note_with_witnesses(scan.header.checkpoint), shard, key) if scan.header else None
        if note is None:
            return None
        self._scans.append((shard.number, scan))
        self.report.findings += tree_findings(self._log, shard, scan, [*_up_to(notes, note), note])
        return scan, note

    def _notes(self, shard: shard_pb2.Shard, key: VerifierKey) -> list[Note]:
        found = (
            self._trusted_note(note_with_witnesses(each), shard, key) for each in self._log.checkpoints(shard.number)
        )
        return [note for note in found if note is not None]

    def _trusted_note(self, text: str, shard: shard_pb2.Shard, key: VerifierKey) -> Note | None:
        try:
            note = Note.parse(text)
        except UnreadableNoteError as error:
            self._find(Kind.WRONG_SIGNATURE, f"a checkpoint cannot be read: {error}", shard=shard.number)
            return None
        trust = note.trust(key)
        if trust is Trust.WRONG_KEY or note.shard != shard.number:
            detail = f"the checkpoint of size {note.size} is not signed by {key.key_id} for this shard"
            self._find(Kind.WRONG_KEY, detail, shard=shard.number)
        elif trust is Trust.WRONG_SIGNATURE:
            detail = f"the checkpoint of size {note.size} carries a signature that its key did not make"
            self._find(Kind.WRONG_SIGNATURE, detail, shard=shard.number)
        else:
            return note
        return None

    def _check_sampled(
        self, shard: shard_pb2.Shard, notes: list[Note], key: VerifierKey
    ) -> tuple[LiveScan, Note] | None:
        """Prove single records by themselves, and that every checkpoint continues the one before."""
        places = SystemRandom().sample(range(shard.tree_size), min(self._sample, shard.tree_size))
        scan, note = LiveScan(()), None
        for place in sorted({0, *places}):
            first = shard.first_sequence + place
            part = pb.SequenceRange(first_sequence=first, end_sequence=first + 1)
            one = LiveScan(())
            parts = list(self._log.export(pb.ExportRecordsRequest(range=part)))
            one.take(parts)
            note = self._trusted_note(note_with_witnesses(one.header.checkpoint), shard, key) if one.header else None
            if one.header is None or note is None:
                return None
            scan.header, scan.count, scan.link = one.header, scan.count + 1, scan.link if place else one.link
            self._check_one(shard, one, note, key, place, parts[-1].proof)
            self._progress(scan.count)
        if note is None:
            return None
        for older, newer in pairwise([*_up_to(notes, note), note]):
            if not self._continues(shard, older, newer):
                detail = f"the checkpoint of size {newer.size} does not continue the one of size {older.size}"
                self._find(Kind.FORK, detail, shard=shard.number)
        return scan, note

    def _check_one(
        self, shard: shard_pb2.Shard, one: LiveScan, note: Note, key: VerifierKey, place: int, proof: pb.ExportProof
    ) -> None:
        sequence = shard.first_sequence + place
        if not one.count:
            self._find(Kind.DELETION, "the record is not there", shard=shard.number, sequence=sequence)
        elif one.unexplained(key, one.explained):
            self._find(Kind.UNEXPLAINED_ERASURE, _GONE, shard=shard.number, sequence=sequence)
        elif not inclusion_holds(place, note.size, one.last_leaf, list(proof.first_hashes), note.root):
            self._find(Kind.EDIT, "the record is not in the signed tree", shard=shard.number, sequence=sequence)

    def _continues(self, shard: shard_pb2.Shard, older: Note, newer: Note) -> bool:
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
        for each in known:
            if note is None or note.size < each.size:
                behind = note.size if note else 0
                detail = f"a checkpoint of size {each.size} was kept, and the log now ends at {behind}"
                place = shard.first_sequence + behind
                self._find(Kind.TRUNCATION, detail, shard=shard.number, sequence=place)
            elif each.size == note.size and each.root != note.root:
                detail = f"the kept checkpoint has the same size {each.size} and another root"
                self._find(Kind.FORK, detail, shard=shard.number)
            elif each.root != roots.get(each.size, each.root):
                detail = f"the kept checkpoint of size {each.size} is not the beginning of this log"
                self._find(Kind.FORK, detail, shard=shard.number)
            elif each.size not in roots and not self._continues(shard, each, note):
                detail = f"the log does not continue the kept checkpoint of size {each.size}"
                self._find(Kind.FORK, detail, shard=shard.number)

    def _check_longer(self, shard: shard_pb2.Shard, note: Note, notes: list[Note]) -> None:
        # The checkpoints were listed before this one was made, so none of them can be larger, however fast the log grows.
        longest = max((each.size for each in notes), default=0)
        if longest > note.size:
            detail = f"the log has signed {longest} records of this shard and says now that it holds fewer"
            place = shard.first_sequence + note.size
            self._find(Kind.TRUNCATION, detail, shard=shard.number, sequence=place)
        if shard.tree_size > note.size:
            self.report.remarks.append(f"shard {shard.number} does not sign what it holds beyond size {note.size}")

    def _check_link(self, shard: shard_pb2.Shard, link: ShardLink | None) -> None:
        if shard.number == 0:
            return
        first, before = self._ends.get(shard.number - 1, (0, None))
        expected = (shard.number - 1, shard.first_sequence)
        if link is None or (link.number, link.first_sequence + link.size) != expected:
            detail = "it does not begin with the record that names the shard before it"
            self._find(Kind.SHARD_SWAPPED, detail, shard=shard.number, sequence=shard.first_sequence)
        elif before is not None and (before.size, before.root) != (link.size, link.root):
            detail = "the next shard names another root for this one"
            self._find(Kind.SHARD_SWAPPED, detail, shard=before.shard, sequence=first)

    def _check_archives(self, shards: list[shard_pb2.Shard]) -> None:
        """Done behind all shards: what says that one was dropped is in a later one."""
        if self._sample:
            answers = [ask_log_about_dropped(self._log, shard) for shard in shards if is_dropped(shard)]
        else:
            answers = [archive_findings(shards, self._scans)]
        for findings, remarks in answers:
            self.report.findings += findings
            self.report.remarks += remarks

    def _ask_log(self) -> None:
        """Ask the log about what no export shows. Where something is wrong already, it would only say so in other words."""
        bad = {finding.shard for finding in self.report.findings}
        for number, scan in self._scans:
            if number not in bad and scan.header is not None:
                first = scan.header.shard.first_sequence
                found = log_reported_finding(self._log, number, first, first + scan.count)
                self.report.findings += [found] if found else []

    def _check_erasures(self, key: VerifierKey) -> None:
        """Done last: the record that explains an erasure may be in any later shard."""
        said = {sequence: leaf for _, scan in self._scans for sequence, leaf in scan.explained.items()}
        for shard, scan in self._scans:
            for sequence in scan.unexplained(key, said):
                self._find(Kind.UNEXPLAINED_ERASURE, _GONE, shard=shard, sequence=sequence)

    def _check_forgotten(self, shards: list[shard_pb2.Shard]) -> None:
        present = {shard.number for shard in shards}
        for number in sorted({each.shard for each in self._known} - present):
            self._find(Kind.SHARD_MISSING, "a checkpoint of this shard was kept, and it is gone", shard=number)

    def _find(self, kind: Kind, detail: str, *, shard: int, sequence: int | None = None) -> None:
        self.report.findings.append(Finding(kind, detail, shard=shard, sequence=sequence))


def _up_to(notes: Sequence[Note], note: Note) -> list[Note]:
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
