"""Parses proofs.json of an export: inclusion paths, checkpoints, the shard link and erasure records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from toolmesh_sdk.audit.format.canonical import UnreadableJsonError, canonical
from toolmesh_sdk.audit.format.log_events import ShardLink, erased_payload, previous_shard
from toolmesh_sdk.audit.format.merkle import inclusion_holds, leaf_hash
from toolmesh_sdk.audit.format.notes import Note, Trust, UnreadableNoteError, VerifierKey


class UnreadableProofError(ValueError):
    """proofs.json does not have the format of an export."""


@dataclass(frozen=True, slots=True)
class Erasure:
    """A record elsewhere in the log that reports an erased payload, with its inclusion proof."""

    sequence: int
    leaf_index: int
    form: dict[str, Any]
    path: list[bytes]
    checkpoint: Note

    def explains(self, leaf: bytes, key: VerifierKey) -> bool:
        """Return whether the record is authentic and reports the erasure of this leaf."""
        if self.checkpoint.trust(key) is not Trust.SIGNED or erased_payload(self.form) != (self.sequence, leaf):
            return False
        own = leaf_hash(canonical(self.form))
        return inclusion_holds(self.leaf_index, self.checkpoint.size, own, self.path, self.checkpoint.root)


@dataclass(frozen=True, slots=True)
class Proofs:
    """The proofs of one export."""

    first_sequence: int
    first: list[bytes]
    last_sequence: int
    last: list[bytes]
    opening: tuple[dict[str, Any], list[bytes]] | None
    checkpoints: list[Note]
    erasures: dict[int, Erasure]
    known: tuple[int, list[bytes]] | None

    def link(self, note: Note) -> ShardLink | None:
        """Return the link to the previous shard, if the opening record is included and proved."""
        if self.opening is None:
            return None
        form, path = self.opening
        proved = inclusion_holds(0, note.size, leaf_hash(canonical(form)), path, note.root)
        return previous_shard(form) if proved else None


def read_proofs(content: dict[str, Any]) -> Proofs:
    """Parse proofs.json. Raises UnreadableProofError."""
    try:
        first, last, opening, known = (content[name] for name in ("first", "last", "opening", "known"))
        if set(content) != {"first", "last", "opening", "known", "checkpoints", "erasures"}:
            raise UnreadableProofError("proofs.json has unknown or missing members")
        erasures = [_parse_erasure(each) for each in content["erasures"]]
        return Proofs(
            first_sequence=_parse_size(first["sequence"]),
            first=parse_path(first["path"]),
            last_sequence=_parse_size(last["sequence"]),
            last=parse_path(last["path"]),
            opening=None if opening is None else (_parse_record(opening["record"]), parse_path(opening["path"])),
            checkpoints=[Note.parse(note) for note in content["checkpoints"]],
            erasures={each.sequence: each for each in erasures},
            known=None if known is None else (_parse_size(known["size"]), parse_path(known["path"])),
        )
    except (KeyError, TypeError, AttributeError, UnreadableNoteError, UnreadableJsonError) as error:
        raise UnreadableProofError(f"proofs.json does not have the format of an export: {error}") from None


def parse_path(values: Iterable[str]) -> list[bytes]:
    """Parse a path of parse_path. Raises UnreadableProofError."""
    try:
        path = [bytes.fromhex(value) for value in values]
    except (TypeError, ValueError):
        raise UnreadableProofError("a hash is not hexadecimal") from None
    if len(path) > 128 or any(len(each) != 32 for each in path):
        raise UnreadableProofError("a path contains an invalid hash")
    return path


def _parse_erasure(content: dict[str, Any]) -> Erasure:
    return Erasure(
        sequence=_parse_size(content["sequence"]),
        leaf_index=_parse_size(content["leaf_index"]),
        form=_parse_record(content["record"]),
        path=parse_path(content["path"]),
        checkpoint=Note.parse(content["checkpoint"]),
    )


def _parse_record(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UnreadableProofError("a record is an object")
    return value


def _parse_size(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise UnreadableProofError("a sequence or size is not a non-negative integer")
    return value
