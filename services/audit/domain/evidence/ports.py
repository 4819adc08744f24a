"""What the log as evidence needs from outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from services.audit.domain.evidence.model import (
    Archival,
    Erasure,
    Leaf,
    LegalHold,
    Requester,
    Shard,
    ShardLink,
)
from services.audit.domain.merkle.merkle import Leaves, Node
from services.audit.domain.model import Entry, SignedCheckpoint


class Scribe(Protocol):
    """Writes down what the log does to itself, as entries of the log's own hand."""

    def shard_opened(self, link: ShardLink) -> Entry:
        """A shard begins."""
        ...

    def payload_erased(self, erasure: Erasure, by: Requester) -> Entry:
        """A payload is erased."""
        ...

    def hold_placed(self, hold: LegalHold, by: Requester) -> Entry:
        """A hold is placed."""
        ...

    def hold_released(self, hold: LegalHold, by: Requester) -> Entry:
        """A hold is released, for the reason that it names now."""
        ...

    def shard_archived(self, archival: Archival, by: Requester) -> Entry:
        """A shard is archived, or its records are dropped."""
        ...


class LogKeeper(Protocol):
    """Changes the log beside appending to it. Each change is durable together with the entry that records it, or neither
    is; each returns the sequence of that entry. Raises what `refused` makes when the log's rules forbid the change, and
    AUDIT_UNAVAILABLE when it cannot tell whether the change is durable."""

    async def close_shard(self, number: int) -> int:
        """Close the open shard, which must have this number and not be empty, and open the next."""
        ...

    async def place_hold(self, entry: Entry) -> int:
        """Place the hold that the entry records."""
        ...

    async def release_hold(self, entry: Entry) -> int:
        """Release the hold that the entry records."""
        ...

    async def erase_payload(self, entry: Entry) -> int:
        """Erase the payload that the entry records."""
        ...

    async def archive_shard(self, entry: Entry) -> int:
        """Note the archive that the entry records."""
        ...

    async def drop_shard(self, entry: Entry, *, years: int) -> int:
        """Drop the records of the archived shard that the entry records, once they are this old."""
        ...


class Shards(Protocol):
    """The shards and holds of the log, as they are durable."""

    async def shard(self, number: int) -> Shard | None:
        """Return one shard."""
        ...

    async def containing(self, sequence: int) -> Shard | None:
        """Return the shard that holds the record at this place, if there is one."""
        ...

    async def shards(self, first: int, limit: int) -> list[Shard]:
        """Return shards from this number on."""
        ...

    async def hold(self, hold_id: str) -> LegalHold | None:
        """Return one hold."""
        ...

    async def holds(self, after: str, limit: int) -> list[LegalHold]:
        """Return the holds whose id comes after this one, in order of their ids."""
        ...

    async def seal(self, number: int) -> bool:
        """Keep anything more from being added to a closed shard; False if it cannot be done now."""
        ...


class Trees(Protocol):
    """The hashes of the log, and what they are the hashes of."""

    async def nodes(self, shard: Shard, wanted: Sequence[Node]) -> Mapping[Node, bytes]:
        """Return the hashes of perfect subtrees of a shard, computed from the nearest hashes that are stored. A node of
        which something is missing is left out."""
        ...

    async def stored(self, shard: Shard, level: int, places: range) -> Mapping[int, bytes]:
        """Return the nodes of a stored level as they are stored."""
        ...

    async def leaves(self, shard: Shard, span: Leaves) -> list[Leaf]:
        """Return the records of a shard from one leaf to just before another, in order, with what they are found by."""
        ...

    async def extremes(self, shard: int) -> tuple[int, int] | None:
        """Return the lowest and the highest sequence that is stored under a shard; None if nothing is."""
        ...


class Index(Protocol):
    """Reads what a record is found by."""

    def __call__(self, canonical: bytes) -> Entry | None:
        """Return the entry as which a record with these bytes was appended; None for bytes that are no record."""
        ...


class CheckpointStore(Protocol):
    """Checkpoints that were signed. They are never changed; co-signatures are added to them."""

    async def add(self, checkpoint: SignedCheckpoint) -> SignedCheckpoint:
        """Store a checkpoint; return the one that is stored for its shard and size, which may be an earlier one."""
        ...

    async def find(self, shard: int, size: int) -> SignedCheckpoint | None:
        """Return the checkpoint of a shard at a size."""
        ...

    async def page(self, shard: int, sizes: range, limit: int, *, ascending: bool) -> list[SignedCheckpoint]:
        """Return checkpoints of a shard within a range of sizes."""
        ...

    async def add_cosignature(self, checkpoint: SignedCheckpoint, key_id: str, line: str) -> None:
        """Add a witness's line to a stored checkpoint; the first one of a key stays."""
        ...


class Anchor(Protocol):
    """A place outside the log's database where checkpoints are kept."""

    async def put(self, checkpoint: SignedCheckpoint) -> None:
        """Keep a checkpoint. Raises AnchorError when it cannot, and when another one is kept in its place."""
        ...


class AnchorError(Exception):
    """A checkpoint could not be anchored."""


class SignatureCheck(Protocol):
    """Verifies Ed25519 signatures."""

    def __call__(self, public_key: bytes, signature: bytes, message: bytes) -> bool:
        """Say whether the key made the signature."""
        ...


class EvidenceWatch(Protocol):
    """Those who want to know how the log's checkpoints are doing."""

    def issued(self, checkpoint: SignedCheckpoint) -> None:
        """Say that a checkpoint was signed and stored."""
        ...

    def failed(self, what: str, error: Exception) -> None:
        """Say what could not be done; it is tried again."""
        ...
