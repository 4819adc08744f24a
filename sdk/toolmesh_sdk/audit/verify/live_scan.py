"""One pass over the records of a shard as they come from a running log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from toolmesh.audit.v1 import audit_record_pb2
from toolmesh.audit.v1 import audit_service_pb2 as pb

from toolmesh_sdk.audit.format.canonical import UnreadableJsonError, parse
from toolmesh_sdk.audit.format.log_events import (
    PAYLOAD_ERASED,
    SHARD_ARCHIVED,
    Archival,
    ShardLink,
    archived_shard,
    erased_payload,
    previous_shard,
)
from toolmesh_sdk.audit.format.merkle import EMPTY_ROOT, Frontier, leaf_hash
from toolmesh_sdk.audit.format.notes import Note, UnreadableNoteError, VerifierKey
from toolmesh_sdk.audit.format.proofs import Erasure
from toolmesh_sdk.audit.verify.report import Finding, Kind

_ERASES, _ARCHIVES = f'"{PAYLOAD_ERASED}"'.encode(), f'"{SHARD_ARCHIVED}"'.encode()


class LiveScan:
    """Grows a shard's tree from the bytes of its records and notes what can be seen on the way: gaps, bytes that do not have the
    hash beside them, payloads that are missing.

    `sizes` are the sizes at which the root is wanted, with `every` multiples of it as well; `keep` are leaves to remember.
    """

    def __init__(
        self,
        sizes: Iterable[int],
        *,
        every: int = 0,
        keep: range = range(0),
        progress: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._sizes, self._every, self._keep, self._progress = set(sizes), every, keep, progress
        self._tree = Frontier()
        self._evidence: dict[int, Erasure] = {}
        self._expected = 0
        self.header: pb.ExportHeader | None = None
        self.count = 0
        self.last_leaf = b""
        self.roots: dict[int, bytes] = {0: EMPTY_ROOT}
        self.before_collected = Frontier()
        """The tree up to the first leaf that was to be remembered."""
        self.kept: list[bytes] = []
        self.erased: dict[int, bytes] = {}
        """Sequence and leaf hash of each record without a payload."""
        self.explained: dict[int, bytes] = {}
        """Sequence and leaf hash of each payload that a record here says was erased."""
        self.archived: set[Archival] = set()
        """The archives that records here note."""
        self.link: ShardLink | None = None
        self.findings: list[Finding] = []
        """What is wrong by itself; at most one of each kind, the first."""

    def take(self, parts: Iterable[Any]) -> None:
        """Take the export of a whole shard."""
        for part in parts:
            kind = part.WhichOneof("part")
            if kind == "header":
                self._begin(part.header)
            elif kind == "records":
                for record in part.records.records:
                    self._record(record)
                self._progress(self.count)
            elif kind == "erasure":
                self._explain(part.erasure)

    def unexplained(self, key: VerifierKey, said: Mapping[int, bytes]) -> list[int]:
        """Return the sequences whose payload is missing although neither an authentic record that came along nor `said`, what
        the records of the log say, explains it."""
        found = []
        for sequence, leaf in self.erased.items():
            evidence = self._evidence.get(sequence)
            if said.get(sequence) != leaf and not (evidence is not None and evidence.explains(leaf, key)):
                found.append(sequence)
        return found

    def _begin(self, header: pb.ExportHeader) -> None:
        # An export that goes on after a break may be headed by a later checkpoint. The records still end where the first one does.
        if self.header is None:
            self.header = header
            self._expected = header.first_sequence
            self._sizes.add(header.checkpoint.tree_size)

    def _record(self, record: audit_record_pb2.LoggedRecord) -> None:
        payload, sequence = record.canonical_json, record.sequence
        if sequence != self._expected:
            self._find(Kind.DELETION, "the record is not there", self._expected)
        leaf = leaf_hash(payload) if payload else record.leaf_hash
        if leaf != record.leaf_hash:
            self._find(Kind.EDIT, "the record does not have the leaf hash that is stored beside it", sequence)
        if not payload:
            self.erased[sequence] = leaf
        elif self.count == 0 or _ERASES in payload or _ARCHIVES in payload:
            self._read(payload)
        self._grow(leaf)
        self._expected = sequence + 1

    def _grow(self, leaf: bytes) -> None:
        if self._keep and self.count == self._keep.start:
            self.before_collected = self._tree.copy()
        if self.count in self._keep:
            self.kept.append(leaf)
        self._tree.append(leaf)
        self.last_leaf = leaf
        self.count += 1
        if self.count in self._sizes or (self._every and self.count % self._every == 0):
            self.roots[self.count] = self._tree.root()

    def _read(self, payload: bytes) -> None:
        form = _form(payload)
        if self.count == 0:
            self.link = previous_shard(form)
        if (erased := erased_payload(form)) is not None:
            self.explained[erased[0]] = erased[1]
        if (archival := archived_shard(form)) is not None:
            self.archived.add(archival)

    def _explain(self, found: pb.ErasureEvidence) -> None:
        form = _form(found.record.canonical_json)
        try:
            note = Note.parse(found.checkpoint.note)
        except UnreadableNoteError:
            return
        if form is not None:
            index = found.record.sequence - found.checkpoint.first_sequence
            self._evidence[found.sequence] = Erasure(found.sequence, index, form, list(found.hashes), note)

    def _find(self, kind: Kind, detail: str, sequence: int) -> None:
        if not any(finding.kind is kind for finding in self.findings):
            self.findings.append(Finding(kind, detail, sequence=sequence))


def _form(payload: bytes) -> dict[str, Any] | None:
    try:
        form = parse(payload)
    except UnreadableJsonError:
        return None
    return form if isinstance(form, dict) else None
