"""Domain model of evidence and retention."""

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
    """A contiguous part of the log with its own tree. The root of an open shard is the current one."""

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
        """The sequence after the last record."""
        return self.first_sequence + self.size


@dataclass(frozen=True, slots=True)
class ShardLink:
    """Reference to the previous shard in the first record of a shard."""

    number: int
    first_sequence: int
    size: int
    root: bytes
    origin: str


@dataclass(frozen=True, slots=True)
class ShardLimits:
    """A commit that finds the open shard this large or this old closes it."""

    records: int
    seconds: float


@dataclass(frozen=True, slots=True)
class LegalHold:
    """Protects records from `first_sequence` to `end_sequence` (exclusive; None: no end) from erasure and drop."""

    hold_id: str
    first_sequence: int
    end_sequence: int | None
    reason: str
    placed_by: str = ""
    place_time: datetime | None = None
    release_time: datetime | None = None


@dataclass(frozen=True, slots=True)
class Erasure:
    """A payload to erase, and the reason. The leaf hash stays."""

    sequence: int
    leaf_hash: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class Archival:
    """The archive of a shard, and whether its records were dropped from the log."""

    shard: int
    manifest_digest: str
    records_dropped: bool


@dataclass(frozen=True, slots=True)
class Requester:
    """Who requested a change of the log: the peer, and the caller that it acts for."""

    peer: str
    identity: Identity | None = None
    trace_id: str = ""
    certificate_thumbprint: str = ""
    """Of the certificate that the peer presented."""


class Leaf(Struct, frozen=True):
    """A record as the verifier reads it. `canonical` is empty if the payload was erased."""

    sequence: int
    canonical: bytes
    leaf_hash: bytes
    log_time: datetime | None
    """None for a time outside the calendar."""
    index_entry: Entry | None
    """The entry as rebuilt from the index columns; None if they do not form one."""


class Defect(Enum):
    """Kinds of defects that verification finds."""

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
class DefectRange:
    """A defect somewhere in the sequences from `first` to `end` (exclusive)."""

    first: int
    end: int
    defect: Defect


@dataclass(frozen=True, slots=True)
class VerificationResult:
    """The first defect found, if any, and the sequence up to which the log was verified."""

    end: int
    bad: DefectRange | None = None
