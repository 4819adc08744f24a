"""What comes with an export beside its records: paths, other checkpoints, the shard before, explanations of erasures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from toolmesh_sdk.audit.format.canonical import UnreadableJsonError, canonical
from toolmesh_sdk.audit.format.log_events import ShardLink, erased_payload, previous_shard
from toolmesh_sdk.audit.format.merkle import inclusion_holds, leaf_hash
from toolmesh_sdk.audit.format.notes import Note, Trust, UnreadableNoteError, VerifierKey


class UnreadableProofError(ValueError):
    """Evidence that is not in the form in which exports carry it."""


@dataclass(frozen=True, slots=True)
class Erasure:
    """A record elsewhere in the log that says that a payload was erased, with its inclusion proof."""

    sequence: int
    leaf_index: int
    form: dict[str, Any]
    path: list[bytes]
    checkpoint: Note

    def explains(self, leaf: bytes, key: VerifierKey) -> bool:
        """Say whether it is authentic and speaks of the record with this leaf hash."""
        if self.checkpoint.trust(key) is not Trust.SIGNED or erased_payload(self.form) != (self.sequence, leaf):
            return False
        own = leaf_hash(canonical(self.form))
        return inclusion_holds(self.leaf_index, self.checkpoint.size, own, self.path, self.checkpoint.root)


@dataclass(frozen=True, slots=True)
class Proofs:
    """The evidence of one export."""

    first_sequence: int
    first: list[bytes]
    last_sequence: int
    last: list[bytes]
    opening: tuple[dict[str, Any], list[bytes]] | None
    checkpoints: list[Note]
    erasures: dict[int, Erasure]
    known: tuple[int, list[bytes]] | None

    def link(self, note: Note) -> ShardLink | None:
        """Return the shard before, if the opening record is here and proved to be the shard's first."""
        if self.opening is None:
            return None
        form, path = self.opening
        proved = inclusion_holds(0, note.size, leaf_hash(canonical(form)), path, note.root)
        return previous_shard(form) if proved else None


def read_proofs(content: dict[str, Any]) -> Proofs:
    """Read proofs.json. Raises UnreadableProofError."""
    try:
        first, last, opening, known = (content[name] for name in ("first", "last", "opening", "known"))
        if set(content) != {"first", "last", "opening", "known", "checkpoints", "erasures"}:
            raise UnreadableProofError("proofs.json has other members than an export has")
        erasures = [_erasure(each) for each in content["erasures"]]
        return Proofs(
            first_sequence=_whole(first["sequence"]),
            first=hashes(first["path"]),
            last_sequence=_whole(last["sequence"]),
            last=hashes(last["path"]),
            opening=None if opening is None else (_form(opening["record"]), hashes(opening["path"])),
            checkpoints=[Note.parse(note) for note in content["checkpoints"]],
            erasures={each.sequence: each for each in erasures},
            known=None if known is None else (_whole(known["size"]), hashes(known["path"])),
        )
    except (KeyError, TypeError, AttributeError, UnreadableNoteError, UnreadableJsonError) as error:
        raise UnreadableProofError(f"proofs.json is not in the form of an export: {error}") from None


def hashes(values: Iterable[str]) -> list[bytes]:
    """Read a path. Raises UnreadableProofError."""
    try:
        found = [bytes.fromhex(value) for value in values]
    except (TypeError, ValueError):
        raise UnreadableProofError("a hash is not hexadecimal") from None
    if len(found) > 128 or any(len(each) != 32 for each in found):
        raise UnreadableProofError("a path holds something that is not a hash")
    return found


def _erasure(content: dict[str, Any]) -> Erasure:
    return Erasure(
        sequence=_whole(content["sequence"]),
        leaf_index=_whole(content["leaf_index"]),
        form=_form(content["record"]),
        path=hashes(content["path"]),
        checkpoint=Note.parse(content["checkpoint"]),
    )


def _form(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UnreadableProofError("a record is an object")
    return value


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise UnreadableProofError("a sequence or size is a whole number")
    return value
