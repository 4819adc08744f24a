"""The report of a verification: findings, problems and remarks."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

OK, TAMPERED, CANNOT_VERIFY = 0, 1, 2


class Kind(StrEnum):
    """The kinds of findings."""

    EDIT = "edit"
    DELETION = "deletion"
    INSERTION = "insertion"
    REORDERING = "reordering"
    TRUNCATION = "truncation"
    FORK = "forked_history"
    REWRITTEN = "rewritten"
    WRONG_SIGNATURE = "wrong_signature"
    WRONG_KEY = "wrong_key"
    WRONG_PROOF = "wrong_proof"
    MANIFEST = "manifest_tampered"
    FILE = "file_tampered"
    SHARD_MISSING = "shard_missing"
    SHARD_SWAPPED = "shard_swapped"
    UNEXPLAINED_ERASURE = "unexplained_erasure"
    INDEX = "index_changed"
    STORED_HASH = "stored_hash_changed"


# The order of findings at the same sequence: causes before consequences.
_WEIGHT = {Kind.WRONG_KEY: 0, Kind.WRONG_SIGNATURE: 1, Kind.FORK: 2, Kind.FILE: 8, Kind.MANIFEST: 7}
_NO_SEQUENCE = 2**63


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding: its kind, its location and a description."""

    kind: Kind
    detail: str
    shard: int | None = None
    sequence: int | None = None
    file: str = ""

    @property
    def location(self) -> str:
        """The sequence, shard and file, as text."""
        parts = [f"sequence {self.sequence}"] if self.sequence is not None else []
        parts += [f"shard {self.shard}"] if self.shard is not None else []
        return ", ".join([*parts, *([self.file] if self.file else [])])

    def order(self) -> tuple[int, int, int]:
        """Return the sort key: untrusted signatures, then by sequence, then the rest."""
        untrusted = self.kind in (Kind.WRONG_KEY, Kind.WRONG_SIGNATURE)
        position = _NO_SEQUENCE if self.sequence is None else self.sequence
        return (0 if untrusted else 1, position, _WEIGHT.get(self.kind, 5))


@dataclass(frozen=True, slots=True)
class ShardReport:
    """The verified part of one shard. `end_sequence` is exclusive; the checkpoint covers `tree_size` records."""

    number: int
    first_sequence: int
    end_sequence: int
    tree_size: int
    root_hash: str
    records: int
    erased: int = 0
    sampled: bool = False


@dataclass(slots=True)
class Report:
    """The outcome of one verification."""

    subject: str
    key_id: str = ""
    shards: list[ShardReport] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Reasons why something could not be verified; they do not indicate tampering."""
    remarks: list[str] = field(default_factory=list)
    """Assumptions of the verdict, such as a key that was not pinned."""

    @property
    def records(self) -> int:
        """The number of verified records."""
        return sum(shard.records for shard in self.shards)

    @property
    def first(self) -> Finding | None:
        """The first finding in sort order."""
        return min(self.findings, key=Finding.order, default=None)

    @property
    def exit_code(self) -> int:
        """0 verified, 1 tampered with, 2 cannot be verified. Tampering outweighs the rest."""
        if self.findings:
            return TAMPERED
        return CANNOT_VERIFY if self.problems else OK

    @property
    def outcome(self) -> str:
        """The label of the exit code."""
        return ("ok", "tampered", "cannot_verify")[self.exit_code]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a JSON object, with sorted findings."""
        ordered = sorted(self.findings, key=Finding.order)
        return {
            "outcome": self.outcome,
            "exit_code": self.exit_code,
            "subject": self.subject,
            "key_id": self.key_id,
            "records": self.records,
            "shards": [asdict(shard) for shard in self.shards],
            "first": asdict(ordered[0]) if ordered else None,
            "findings": [asdict(finding) for finding in ordered],
            "problems": list(self.problems),
            "remarks": list(self.remarks),
        }
