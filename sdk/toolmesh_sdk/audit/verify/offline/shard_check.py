"""Verifies the export of one shard, or of a part of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from toolmesh_sdk.audit.format.canonical import UnreadableJsonError
from toolmesh_sdk.audit.format.events import RecordLocation
from toolmesh_sdk.audit.format.log_events import Archival, ShardLink
from toolmesh_sdk.audit.format.manifest import MANIFEST, PROOFS
from toolmesh_sdk.audit.format.merkle import Frontier, consistency_holds, frontier_before, inclusion_holds
from toolmesh_sdk.audit.format.notes import Note, Trust, UnreadableNoteError, VerifierKey
from toolmesh_sdk.audit.format.proofs import Proofs, UnreadableProofError, read_proofs
from toolmesh_sdk.audit.verify.offline.derived_files import derived_file_findings
from toolmesh_sdk.audit.verify.offline.diagnose import diagnose
from toolmesh_sdk.audit.verify.offline.export_folder import ExportFolder
from toolmesh_sdk.audit.verify.offline.export_scan import (
    CLAIMED,
    DATA,
    LISTED,
    ExportScan,
    ExportScanResult,
    Tree,
)
from toolmesh_sdk.audit.verify.report import Finding, Kind, ShardReport

# Findings about records of which no copy of the leaf hashes is authentic.
_PLACED_BY_CHECKPOINTS = (Kind.REWRITTEN, Kind.TRUNCATION, Kind.INSERTION)


class ShardCheck:
    """Verifies the export in a folder with a key and known checkpoints."""

    def __init__(self, folder: ExportFolder, key: VerifierKey, known: Sequence[Note]) -> None:
        self.folder, self.manifest, self._key = folder, folder.manifest, key
        self._known = [note for note in known if note.shard == folder.manifest.shard]
        self.findings: list[Finding] = []
        self.problems: list[str] = []
        self.link: ShardLink | None = None
        self.archived: set[Archival] = set()
        """The archives of other shards that authentic records here report."""
        self.mentioned: set[int] = set()
        """The shards that hold the signed erasure records."""
        self.report: ShardReport | None = None

    @cached_property
    def note(self) -> Note | None:
        """The checkpoint of the export."""
        try:
            return Note.parse(self.manifest.checkpoint)
        except UnreadableNoteError as error:
            self._add_finding(Kind.MANIFEST, f"the checkpoint is unreadable: {error}", file=MANIFEST)
            return None

    def run(self) -> None:
        """Run all checks and fill findings, problems, link and report."""
        self.findings += self.folder.file_findings()
        note, proofs = self.note, self._read_proofs()
        if note is None or proofs is None:
            return
        self._check_note(note)
        self._check_manifest(note, proofs)
        if any(finding.file == MANIFEST for finding in self.findings):
            # With a wrong manifest the locations of records are unknown.
            return
        scan = self._scan(note, proofs)
        authentic = {source for source in (DATA, CLAIMED, LISTED) if self._authentic(scan.tree(source), note, proofs)}
        self._check_records(scan, authentic, note)
        self._check_erasures(scan, proofs)
        self._check_link(scan, note, proofs)
        self._check_known(scan, note, proofs)
        if DATA in authentic:
            self.archived = scan.archived
            findings, problems = derived_file_findings(self.folder)
            self.findings += findings
            self.problems += problems
        self.report = self._summary(scan, note)

    def _read_proofs(self) -> Proofs | None:
        try:
            return read_proofs(self.folder.proofs())
        except (UnreadableJsonError, UnreadableProofError) as error:
            self._add_finding(Kind.FILE, str(error), file=PROOFS)
            return None

    def _check_note(self, note: Note) -> None:
        trust = note.trust(self._key)
        if trust is Trust.WRONG_KEY:
            self._add_finding(Kind.WRONG_KEY, f"the checkpoint is not signed by {self._key.key_id}")
        elif trust is Trust.WRONG_SIGNATURE:
            self._add_finding(Kind.WRONG_SIGNATURE, "the signature of the checkpoint is invalid")

    def _check_manifest(self, note: Note, proofs: Proofs) -> None:
        m = self.manifest
        own_key = _public_key(m.verifier_key) == self._key.public_key
        trusted = not any(finding.kind is Kind.WRONG_KEY for finding in self.findings)
        for wrong, what in (
            (m.log != note.log or m.shard != note.shard, "its log or shard differs from its checkpoint"),
            (trusted and not own_key, "its key is not the one that signed its checkpoint"),
            (not m.shard_first_sequence <= m.first_sequence < m.end_sequence, "its sequences are not a range"),
            (m.shard == 0 and m.shard_first_sequence != 0, "the first shard does not start at sequence 0"),
        ):
            if wrong:
                self._add_finding(Kind.MANIFEST, what, file=MANIFEST)
        if m.end_sequence - m.shard_first_sequence > note.size:
            self._add_finding(Kind.MANIFEST, "it claims more records than its checkpoint covers", file=MANIFEST)
        if (proofs.first_sequence, proofs.last_sequence) != (m.first_sequence, m.end_sequence - 1):
            moved_end = proofs.last_sequence >= m.end_sequence
            sequence = m.end_sequence if moved_end else m.first_sequence
            kind = Kind.TRUNCATION if moved_end else Kind.MANIFEST
            self._add_finding(kind, "the proofs are for another part of the shard", sequence=sequence, file=MANIFEST)

    def _scan(self, note: Note, proofs: Proofs) -> ExportScanResult:
        m = self.manifest
        index = m.first_sequence - m.shard_first_sequence
        start = frontier_before(index, note.size, proofs.first) if index else Frontier()
        if start is None:
            self._add_finding(
                Kind.WRONG_PROOF, "the path of the first record does not fit the tree", sequence=m.first_sequence
            )
            start = Frontier()
        sizes = [each.size for each in (*proofs.checkpoints, *self._known)]
        scanner = ExportScan(
            start, RecordLocation(m.log, m.shard, m.first_sequence), m.end_sequence - m.first_sequence, sizes
        )
        return scanner.run(self.folder.lines(), self.folder.leaves())

    def _authentic(self, tree: Tree, note: Note, proofs: Proofs) -> bool:
        """Return whether a tree is the signed one: by its root, or by the path of its last leaf."""
        end = self.manifest.end_sequence - self.manifest.shard_first_sequence
        if tree.count != tree.expected or tree.before_last is None or tree.frontier.size != end:
            return False
        if end == note.size:
            return tree.frontier.root() == note.root
        left = frontier_before(end - 1, note.size, proofs.last)
        same_left = left is not None and left.nodes == tree.before_last.nodes
        return same_left and inclusion_holds(end - 1, note.size, tree.last, proofs.last, note.root)

    def _check_records(self, scan: ExportScanResult, authentic: set[str], note: Note) -> None:
        for finding in diagnose(self.folder, scan, authentic):
            guessed = not authentic and finding.kind in _PLACED_BY_CHECKPOINTS
            self.findings.append(self._located(finding, scan, note) if guessed else finding)

    def _located(self, finding: Finding, scan: ExportScanResult, note: Note) -> Finding:
        """Locate the change between the last signed checkpoint that matches and the first that does not. Without such
        a checkpoint, a finding that has a sequence keeps it."""
        first = self.manifest.shard_first_sequence
        good, bad, pinned = self.manifest.first_sequence - first, note.size, False
        proofs = self._read_proofs()
        checkpoints = (*(proofs.checkpoints if proofs else []), *self._known)
        for checkpoint in sorted(checkpoints, key=lambda known: known.size):
            if checkpoint.trust(self._key) is Trust.SIGNED and checkpoint.size in scan.roots:
                if scan.roots[checkpoint.size] != checkpoint.root:
                    bad, pinned = min(bad, checkpoint.size), True
                    break
                good = max(good, checkpoint.size)
        if not pinned and finding.sequence is not None:
            return finding
        # Records that end early, but differ before: one was taken out, and those behind it moved up.
        kind = Kind.DELETION if finding.kind is Kind.TRUNCATION else finding.kind
        what = "records that the log signed are missing here" if kind is Kind.DELETION else finding.detail
        detail = f"{what}; the first change is between sequence {first + good} and {first + bad - 1}"
        return replace(finding, kind=kind, sequence=first + good, detail=detail)

    def _check_erasures(self, scan: ExportScanResult, proofs: Proofs) -> None:
        for sequence, leaf in scan.erased.items():
            elsewhere = proofs.erasures.get(sequence)
            known = scan.explained.get(sequence) == leaf
            if elsewhere is not None and elsewhere.explains(leaf, self._key):
                self.mentioned.add(elsewhere.checkpoint.shard)
                continue
            if not known:
                detail = "the payload is missing and no record of the log explains its erasure"
                self._add_finding(Kind.UNEXPLAINED_ERASURE, detail, sequence=sequence)
        for sequence in set(proofs.erasures) - set(scan.erased):
            self._add_finding(
                Kind.FILE, f"it reports the erasure of sequence {sequence}, which is not erased", file=PROOFS
            )

    def _check_link(self, scan: ExportScanResult, note: Note, proofs: Proofs) -> None:
        m = self.manifest
        whole = m.first_sequence == m.shard_first_sequence
        self.link = scan.link if whole else proofs.link(note)
        claimed = self.link.to_dict() if self.link else None
        if m.shard == 0 and self.link is None and m.previous_shard is None:
            return
        if self.link is None or m.shard == 0:
            if not any(finding.sequence == m.first_sequence for finding in self.findings):
                detail = "it does not start with the record that links to the previous shard"
                self._add_finding(Kind.SHARD_SWAPPED, detail, sequence=m.shard_first_sequence)
            return
        expected = (m.shard - 1, f"{m.log}/{m.shard - 1}", m.shard_first_sequence)
        linked = (self.link.number, self.link.origin, self.link.first_sequence + self.link.size)
        if linked != expected:
            detail = "its first record links to another shard"
            self._add_finding(Kind.SHARD_SWAPPED, detail, sequence=m.shard_first_sequence)
        elif claimed != m.previous_shard:
            self._add_finding(Kind.MANIFEST, "its previous shard differs from the log's", file=MANIFEST)

    def _check_known(self, scan: ExportScanResult, note: Note, proofs: Proofs) -> None:
        for checkpoint in proofs.checkpoints:
            if checkpoint.trust(self._key) is not Trust.SIGNED or checkpoint.origin != note.origin:
                self._add_finding(
                    Kind.FILE, f"a checkpoint of size {checkpoint.size} is not signed by the log", file=PROOFS
                )
            elif checkpoint.size in scan.roots and scan.roots[checkpoint.size] != checkpoint.root and not self.findings:
                self._add_fork(checkpoint, "an earlier checkpoint in the export")
        for known in self._known:
            if known.origin != note.origin:
                self.problems.append(f"the known checkpoint is of {known.origin}, not of {note.origin}")
            elif known.size > note.size:
                sequence = self.manifest.shard_first_sequence + note.size
                detail = f"a checkpoint of size {known.size} is known, but the export ends at {note.size}"
                self._add_finding(Kind.TRUNCATION, detail, sequence=sequence)
            elif not self._extends(known, scan, note, proofs):
                self._add_fork(known, "the known checkpoint")

    def _extends(self, known: Note, scan: ExportScanResult, note: Note, proofs: Proofs) -> bool:
        if known.size == note.size:
            return known.root == note.root
        if known.size in scan.roots and not self.findings:
            return scan.roots[known.size] == known.root
        if proofs.known is not None and proofs.known[0] == known.size:
            return consistency_holds(known.size, note.size, proofs.known[1], known.root, note.root)
        if known.size in scan.roots:
            return scan.roots[known.size] == known.root
        self.problems.append(f"the export does not prove that it extends the known checkpoint of size {known.size}")
        return True

    def _add_fork(self, known: Note, which: str) -> None:
        same = known.size == (self.note.size if self.note else -1)
        detail = (
            f"{which} has the same size {known.size} and another root"
            if same
            else f"{which} of size {known.size} is not a prefix of this log"
        )
        self._add_finding(Kind.FORK, detail, sequence=None)

    def _summary(self, scan: ExportScanResult, note: Note) -> ShardReport:
        m = self.manifest
        return ShardReport(
            number=m.shard,
            first_sequence=m.first_sequence,
            end_sequence=m.end_sequence,
            tree_size=note.size,
            root_hash=note.root.hex(),
            records=scan.tree(DATA).count,
            erased=len(scan.erased),
        )

    def _add_finding(self, kind: Kind, detail: str, *, sequence: int | None = None, file: str = "") -> None:
        self.findings.append(Finding(kind, detail, shard=self.manifest.shard, sequence=sequence, file=file))


def _public_key(text: str) -> bytes | None:
    try:
        return VerifierKey.parse(text).public_key
    except UnreadableNoteError:
        return None
