"""Scans the records of a shard from a running log."""

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
    """Builds the tree of a shard from its records, and finds gaps, wrong leaf hashes and missing payloads.

    Roots are recorded at `sizes`, and at multiples of `every`. The leaves in the range `collect` are kept.
    """

    def __init__(
        self,
        sizes: Iterable[int],
        *,
        every: int = 0,
        collect: range = range(0),
        progress: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._sizes, self._every, self._collect, self._progress = set(sizes), every, collect, progress
        self._tree = Frontier()
        self._evidence: dict[int, Erasure] = {}
        self._expected = 0
        self.header: pb.ExportHeader | None = None
        self.count = 0
        self.last_leaf = b""
        self.roots: dict[int, bytes] = {0: EMPTY_ROOT}
        self.before_collected = Frontier()
        """The tree before the first collected leaf."""
        self.collected: list[bytes] = []
        self.erased: dict[int, bytes] = {}
        """Sequence and leaf hash of each record without a payload."""
        self.explained: dict[int, bytes] = {}
        """Sequence and leaf hash of each payload that a record here reports as erased."""
        self.archived: set[Archival] = set()
        """The archives that records here report."""
        self.link: ShardLink | None = None
        self.findings: list[Finding] = []
        """The first finding of each kind."""

    def take(self, parts: Iterable[Any]) -> None:
        """Scan the export stream of a whole shard."""
        for part in parts:
            kind = part.WhichOneof("part")
            if kind == "header":
                self._start(part.header)
            elif kind == "records":
                for record in part.records.records:
                    self._add_record(record)
                self._progress(self.count)
            elif kind == "erasure":
                self._explain(part.erasure)

    def unexplained(self, key: VerifierKey, reported: Mapping[int, bytes]) -> list[int]:
        """Return the sequences of missing payloads whose erasure neither an authentic record of the stream nor
        `reported`, the erasures in other records, explains."""
        unexplained = []
        for sequence, leaf in self.erased.items():
            evidence = self._evidence.get(sequence)
            if reported.get(sequence) != leaf and not (evidence is not None and evidence.explains(leaf, key)):
                unexplained.append(sequence)
        return unexplained

    def _start(self, header: pb.ExportHeader) -> None:
        # A resumed export may have a later checkpoint, but its records end at the first header's range.
        if self.header is None:
            self.header = header
            self._expected = header.first_sequence
            self._sizes.add(header.checkpoint.tree_size)

    def _add_record(self, record: audit_record_pb2.LoggedRecord) -> None:
        payload, sequence = record.canonical_json, record.sequence
        if sequence != self._expected:
            self._add_finding(Kind.DELETION, "the record is missing", self._expected)
        leaf = leaf_hash(payload) if payload else record.leaf_hash
        if leaf != record.leaf_hash:
            self._add_finding(Kind.EDIT, "the record does not match its stored leaf hash", sequence)
        if not payload:
            self.erased[sequence] = leaf
        elif self.count == 0 or _ERASES in payload or _ARCHIVES in payload:
            self._read_log_event(payload)
        self._add_leaf(leaf)
        self._expected = sequence + 1

    def _add_leaf(self, leaf: bytes) -> None:
        if self._collect and self.count == self._collect.start:
            self.before_collected = self._tree.copy()
        if self.count in self._collect:
            self.collected.append(leaf)
        self._tree.append(leaf)
        self.last_leaf = leaf
        self.count += 1
        if self.count in self._sizes or (self._every and self.count % self._every == 0):
            self.roots[self.count] = self._tree.root()

    def _read_log_event(self, payload: bytes) -> None:
        form = _parse_record(payload)
        if self.count == 0:
            self.link = previous_shard(form)
        if (erased := erased_payload(form)) is not None:
            self.explained[erased[0]] = erased[1]
        if (archival := archived_shard(form)) is not None:
            self.archived.add(archival)

    def _explain(self, evidence: pb.ErasureEvidence) -> None:
        form = _parse_record(evidence.record.canonical_json)
        try:
            note = Note.parse(evidence.checkpoint.note)
        except UnreadableNoteError:
            return
        if form is not None:
            index = evidence.record.sequence - evidence.checkpoint.first_sequence
            self._evidence[evidence.sequence] = Erasure(evidence.sequence, index, form, list(evidence.hashes), note)

    def _add_finding(self, kind: Kind, detail: str, sequence: int) -> None:
        if not any(finding.kind is kind for finding in self.findings):
            self.findings.append(Finding(kind, detail, sequence=sequence))


def _parse_record(payload: bytes) -> dict[str, Any] | None:
    try:
        form = parse(payload)
    except UnreadableJsonError:
        return None
    return form if isinstance(form, dict) else None
