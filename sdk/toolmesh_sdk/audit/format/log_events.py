"""Parses the log's own records: links between shards, erased payloads and archives."""

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
    """The previous shard, as recorded in the first record of the next one."""

    number: int
    first_sequence: int
    size: int
    root: bytes
    origin: str

    def to_dict(self) -> dict[str, Any]:
        """Return the link in the form of a manifest."""
        return {
            "number": self.number,
            "first_sequence": self.first_sequence,
            "tree_size": self.size,
            "root_hash": self.root.hex(),
            "origin": self.origin,
        }


@dataclass(frozen=True, slots=True)
class Archival:
    """The recorded archive of a shard: the digest of its manifest, and whether the records were dropped."""

    shard: int
    manifest_digest: str
    records_dropped: bool


def previous_shard(form: Mapping[str, Any] | None) -> ShardLink | None:
    """Return the link of a record that opens a shard; None for other records."""
    details = _event_details(form, SHARD_OPENED, "previous_shard")
    if details is None:
        return None
    root = _hash(details.get("root_hash"))
    numbers = [details.get(name, 0) for name in ("number", "first_sequence", "tree_size")]
    if root is None or not all(type(each) is int for each in numbers):
        return None
    return ShardLink(numbers[0], numbers[1], numbers[2], root, str(details.get("origin", "")))


def erased_payload(form: Mapping[str, Any] | None) -> tuple[int, bytes] | None:
    """Return sequence and leaf hash of the payload that this record reports as erased; None for other records."""
    details = _event_details(form, PAYLOAD_ERASED, "erasure")
    if details is None:
        return None
    leaf, sequence = _hash(details.get("leaf_hash")), details.get("sequence", 0)
    return (sequence, leaf) if leaf is not None and type(sequence) is int else None


def archived_shard(form: Mapping[str, Any] | None) -> Archival | None:
    """Return the archive that this record reports; None for other records."""
    details = _event_details(form, SHARD_ARCHIVED, "archival")
    if details is None:
        return None
    shard, digest = details.get("shard", 0), details.get("manifest_digest", "")
    if type(shard) is not int or not isinstance(digest, str):
        return None
    return Archival(shard, digest, details.get("records_dropped") is True)


def _event_details(form: Mapping[str, Any] | None, event_class: str, field: str) -> Mapping[str, Any] | None:
    if form is None or form.get("event_class") != event_class or form.get("writer") != LOG_WRITER:
        return None
    details = form.get(field)
    return details if isinstance(details, dict) else None


def _hash(text: Any) -> bytes | None:
    if not isinstance(text, str):
        return None
    try:
        value = bytes.fromhex(text) if len(text) == 64 else base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        return None
    return value if len(value) == 32 else None
