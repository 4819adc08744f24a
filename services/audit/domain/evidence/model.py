"""The nouns of the log as evidence."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from msgspec import Struct

from libs.common.auth.identity import Identity
from services.audit.domain.model import Entry

LAST_SHARD = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Shard:
    """A contiguous part of the log with a tree of its own. Its root is that of now while it is open."""

    log_id: str
    number: int
    first_sequence: int
    size: int
    root: bytes
    open_time: datetime
    close_time: datetime | None = None
    archive_time: datetime | None = None
    manifest_digest: str = ""
    drop_time: datetime | None = None

    @property
    def end_sequence(self) -> int:
        """The sequence behind its last record."""
        return self.first_sequence + self.size


@dataclass(frozen=True, slots=True)
class ShardLink:
    """What the first record of a shard says about the shard before."""

    number: int
    first_sequence: int
    size: int
    root: bytes
    origin: str


@dataclass(frozen=True, slots=True)
class ShardLimits:
    """When a shard is full: at the first commit that finds it this large, or this old."""

    records: int
    seconds: float


@dataclass(frozen=True, slots=True)
class LegalHold:
    """Keeps records from `first_sequence` to just before `end_sequence`, or without end, from being erased or dropped."""

    hold_id: str
    first_sequence: int
    end_sequence: int | None
    reason: str
    placed_by: str = ""
    place_time: datetime | None = None
    release_time: datetime | None = None


@dataclass(frozen=True, slots=True)
class Erasure:
    """A payload to erase, and why. Its leaf hash stays."""

    sequence: int
    leaf_hash: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class Archival:
    """An archive of a shard, and whether the log still holds its records."""

    shard: int
    manifest_digest: str
    records_dropped: bool


@dataclass(frozen=True, slots=True)
class Requester:
    """Who asked for a change of the log: a peer, and the caller it speaks for."""

    peer: str
    identity: Identity | None = None


class Leaf(Struct, frozen=True):
    """One record as a verifier reads it. The canonical bytes are empty when the payload was erased."""

    sequence: int
    canonical: bytes
    leaf_hash: bytes
    log_time: datetime | None
    """None for a moment that no clock shows."""
    found_by: Entry | None
    """The entry that its columns make; None if they make none."""


class Defect(Enum):
    """What can be wrong with a place of the log."""

    SEQUENCE_BROKEN = "sequence_broken"
    PAYLOAD_CHANGED = "payload_changed"
    PAYLOAD_MISSING = "payload_missing"
    LEAVES_CHANGED = "leaves_changed"
    LINK_BROKEN = "link_broken"
    CHECKPOINT_BROKEN = "checkpoint_broken"
    ROOT_BROKEN = "root_broken"
    INDEX_CHANGED = "index_changed"
    SHARD_MISSING = "shard_missing"


@dataclass(frozen=True, slots=True)
class BadPlace:
    """Where the log is not what it says it is: somewhere from `first` to just before `end`."""

    first: int
    end: int
    defect: Defect


@dataclass(frozen=True, slots=True)
class Verdict:
    """What verifying found, and how far it came."""

    end: int
    bad: BadPlace | None = None
