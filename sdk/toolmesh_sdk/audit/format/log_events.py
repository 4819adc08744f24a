"""What the log says about itself in its own records: which shard came before, which payload was erased, which
shard has an archive."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LOG_WRITER = "audit"
SHARD_OPENED, PAYLOAD_ERASED, SHARD_ARCHIVED = "shard_opened", "payload_erased", "shard_archived"


@dataclass(frozen=True, slots=True)
class ShardLink:
    """The shard before, as the first record of the next one names it."""

    number: int
    first_sequence: int
    size: int
    root: bytes
    origin: str

    def to_dict(self) -> dict[str, Any]:
        """Return it as a manifest says it."""
        return {
            "number": self.number,
            "first_sequence": self.first_sequence,
            "tree_size": self.size,
            "root_hash": self.root.hex(),
            "origin": self.origin,
        }


@dataclass(frozen=True, slots=True)
class Archival:
    """An archive of a shard, by the digest of its manifest, and whether the log dropped the records when it noted this."""

    shard: int
    manifest_digest: str
    records_dropped: bool


def previous_shard(form: Mapping[str, Any] | None) -> ShardLink | None:
    """Return the link that a record holds; None if it is not one with which the log opened a shard."""
    said = _said(form, SHARD_OPENED, "previous_shard")
    if said is None:
        return None
    root = _hash(said.get("root_hash"))
    whole = [said.get(name, 0) for name in ("number", "first_sequence", "tree_size")]
    if root is None or not all(type(each) is int for each in whole):
        return None
    return ShardLink(whole[0], whole[1], whole[2], root, str(said.get("origin", "")))


def erased_payload(form: Mapping[str, Any] | None) -> tuple[int, bytes] | None:
    """Return sequence and leaf hash of the record whose payload this record says was erased; None if it says no such thing."""
    said = _said(form, PAYLOAD_ERASED, "erasure")
    if said is None:
        return None
    leaf, sequence = _hash(said.get("leaf_hash")), said.get("sequence", 0)
    return (sequence, leaf) if leaf is not None and type(sequence) is int else None


def archived_shard(form: Mapping[str, Any] | None) -> Archival | None:
    """Return the archive that this record notes; None if it notes none."""
    said = _said(form, SHARD_ARCHIVED, "archival")
    if said is None:
        return None
    shard, digest = said.get("shard", 0), said.get("manifest_digest", "")
    if type(shard) is not int or not isinstance(digest, str):
        return None
    return Archival(shard, digest, said.get("records_dropped") is True)


def _said(form: Mapping[str, Any] | None, event_class: str, field: str) -> Mapping[str, Any] | None:
    if form is None or form.get("event_class") != event_class or form.get("writer") != LOG_WRITER:
        return None
    said = form.get(field)
    return said if isinstance(said, dict) else None


def _hash(text: Any) -> bytes | None:
    if not isinstance(text, str):
        return None
    try:
        value = bytes.fromhex(text) if len(text) == 64 else base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        return None
    return value if len(value) == 32 else None
