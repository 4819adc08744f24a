"""Ports of evidence and retention."""

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
from services.audit.domain.merkle.merkle import LeafRange, Node
from services.audit.domain.model import Entry, SignedCheckpoint


class SelfRecorder(Protocol):
    """Builds the records that the log writes about its own changes."""

    def record_shard_opened(self, link: ShardLink) -> Entry:
        """A shard was opened."""
        ...

    def record_payload_erased(self, erasure: Erasure, by: Requester) -> Entry:
        """A payload was erased."""
        ...

    def record_hold_placed(self, hold: LegalHold, by: Requester) -> Entry:
        """A hold was placed."""
        ...

    def record_hold_released(self, hold: LegalHold, by: Requester) -> Entry:
        """A hold was released; its reason is the reason of the release."""
        ...

    def record_shard_archived(self, archival: Archival, by: Requester) -> Entry:
        """A shard was archived, or its records were dropped."""
        ...


class RetentionWriter(Protocol):
    """Changes the log other than by appending. Each change is durable together with the entry that records it, or not
    at all, and returns the sequence of that entry. Raises a `condition_error` when a rule forbids the change, and
    AUDIT_UNAVAILABLE when it is unknown whether the change is durable."""

    async def close_shard(self, number: int) -> int:
        """Close the open shard, which must have this number and not be empty, and open the next."""
        ...

    async def place_hold(self, entry: Entry) -> int:
        """Place the hold in the entry."""
        ...

    async def release_hold(self, entry: Entry) -> int:
        """Release the hold in the entry."""
        ...

    async def erase_payload(self, entry: Entry) -> int:
        """Erase the payload named in the entry."""
        ...

    async def archive_shard(self, entry: Entry) -> int:
        """Register the archive named in the entry."""
        ...

    async def drop_shard(self, entry: Entry, *, years: int) -> int:
        """Drop the records of the archived shard named in the entry, if they are at least this many years old."""
        ...


class ShardStore(Protocol):
    """Reads committed shards and legal holds."""

    async def get(self, number: int) -> Shard | None:
        """Return a shard."""
        ...

    async def find_containing(self, sequence: int) -> Shard | None:
        """Return the shard that contains a sequence, if any."""
        ...

    async def list_from(self, first: int, limit: int) -> list[Shard]:
        """Return shards from this number on."""
        ...

    async def get_hold(self, hold_id: str) -> LegalHold | None:
        """Return a hold."""
        ...

    async def list_holds(self, after: str, limit: int) -> list[LegalHold]:
        """Return the holds with an id after this one, ordered by id."""
        ...

    async def seal(self, number: int) -> bool:
        """Make a closed shard refuse further records; False if that is not possible now."""
        ...


class TreeStore(Protocol):
    """Reads hashes and leaves of the log."""

    async def node_hashes(self, shard: Shard, nodes: Sequence[Node]) -> Mapping[Node, bytes]:
        """Return the hashes of perfect subtrees, computed from the nearest stored hashes. Nodes with missing hashes are
        omitted."""
        ...

    async def stored_hashes(self, shard: Shard, level: int, offsets: range) -> Mapping[int, bytes]:
        """Return the hashes of a stored level, as stored, by offset."""
        ...

    async def read_leaves(self, shard: Shard, span: LeafRange) -> list[Leaf]:
        """Return the records of a leaf range in order, with their index columns."""
        ...

    async def sequence_bounds(self, shard: int) -> tuple[int, int] | None:
        """Return the lowest and the highest sequence stored in a shard; None if it has no records."""
        ...


class EntryDecoder(Protocol):
    """Rebuilds an entry from canonical bytes."""

    def __call__(self, canonical: bytes) -> Entry | None:
        """Return the entry that was appended with these bytes; None if they are not a record."""
        ...


class CheckpointStore(Protocol):
    """Stores signed checkpoints. They are immutable; co-signatures are added."""

    async def add(self, checkpoint: SignedCheckpoint) -> SignedCheckpoint:
        """Store a checkpoint; return the one stored for its shard and size, which may be an earlier one."""
        ...

    async def find(self, shard: int, size: int) -> SignedCheckpoint | None:
        """Return the checkpoint of a shard at a size."""
        ...

    async def page(self, shard: int, sizes: range, limit: int, *, ascending: bool) -> list[SignedCheckpoint]:
        """Return the checkpoints of a shard within a range of sizes."""
        ...

    async def add_cosignature(self, checkpoint: SignedCheckpoint, key_id: str, line: str) -> None:
        """Add a signature line of a witness; the first line of each key is kept."""
        ...


class Anchor(Protocol):
    """Keeps checkpoints outside the log's database."""

    async def put(self, checkpoint: SignedCheckpoint) -> None:
        """Store a checkpoint. Raises AnchorError if that fails, or if a different one is stored under the same size."""
        ...


class AnchorError(Exception):
    """A checkpoint could not be anchored."""


class SignatureVerifier(Protocol):
    """Verifies Ed25519 signatures."""

    def __call__(self, public_key: bytes, signature: bytes, message: bytes) -> bool:
        """Return whether the key made the signature."""
        ...


class CheckpointObserver(Protocol):
    """Receives the outcome of issuing checkpoints."""

    def report_issued(self, checkpoint: SignedCheckpoint) -> None:
        """Report a signed and stored checkpoint."""
        ...

    def report_failure(self, what: str, error: Exception) -> None:
        """Report a failed step; it is retried."""
        ...
