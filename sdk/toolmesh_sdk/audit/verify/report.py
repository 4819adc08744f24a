"""What a verification found: typed, in order, and ready for a machine."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

OK, TAMPERED, CANNOT_VERIFY = 0, 1, 2


class Kind(StrEnum):
    """How evidence was changed, or what about it cannot be believed."""

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


# Findings without a place in the log: where trust begins comes first, what merely follows from another one comes last.
_WEIGHT = {Kind.WRONG_KEY: 0, Kind.WRONG_SIGNATURE: 1, Kind.FORK: 2, Kind.FILE: 8, Kind.MANIFEST: 7}
_NO_SEQUENCE = 2**63


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: of which kind, where it begins, and in words."""

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
        """Sort key: an untrusted signature, then the first bad sequence, then everything else."""
        untrusted = self.kind in (Kind.WRONG_KEY, Kind.WRONG_SIGNATURE)
        position = _NO_SEQUENCE if self.sequence is None else self.sequence
        return (0 if untrusted else 1, position, _WEIGHT.get(self.kind, 5))


@dataclass(frozen=True, slots=True)
class ShardReport:
    """What was looked at in one shard. `end_sequence` is the first sequence behind it; the checkpoint covers `tree_size`."""

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
    """Why something could not be verified at all; says nothing about tampering."""
    remarks: list[str] = field(default_factory=list)
    """What the verdict rests on and a person should know, such as a key that was not pinned."""

    @property
    def records(self) -> int:
        """How many records were verified."""
        return sum(shard.records for shard in self.shards)

    @property
    def first(self) -> Finding | None:
        """The finding that names the first bad place."""
        return min(self.findings, key=Finding.order, default=None)

    @property
    def exit_code(self) -> int:
        """0 verified, 1 tampered with, 2 cannot be verified. What is known to be bad outweighs what is not known."""
        if self.findings:
            return TAMPERED
        return CANNOT_VERIFY if self.problems else OK

    @property
    def outcome(self) -> str:
        """The exit code as a word."""
        return ("ok", "tampered", "cannot_verify")[self.exit_code]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values; the findings with the first bad place in front."""
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
