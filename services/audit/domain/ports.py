"""What the domain needs from outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from services.audit.domain.model import Appended, Entry, LoggedRecord, Page, RecordFilter, Span, Standing, TreeHead
from services.audit.domain.relay.cloudevent import CloudEvent


class LogWriter(Protocol):
    """The end of the log."""

    async def append(self, entries: Sequence[Entry]) -> Appended:
        """Make all entries durable, or none, in their order; a record that the log holds already keeps its old place.

        Never called while an earlier call is under way. Raises AUDIT_UNAVAILABLE when it cannot tell that the entries
        are durable; they may be, and giving them again is safe. Raises TakenError, and stores nothing, when one of them
        has the id of a record with other bytes, in the log or among them.
        """
        ...

    def foresee(self, entries: Sequence[Entry]) -> None:
        """Make ready what will be given to `append` next, the very same sequence, while a call of it is under way."""
        ...


class LogReader(Protocol):
    """The log as it is durable. Every answer shows the log without gaps up to some size."""

    async def head(self) -> TreeHead:
        """Return the tree over everything that was durable when this was called."""
        ...

    async def by_sequence(self, log_id: str, sequence: int) -> LoggedRecord | None:
        """Return the record at this place of this log."""
        ...

    async def by_record_id(self, record_id: str) -> LoggedRecord | None:
        """Return the record with the id that its writer gave it."""
        ...

    async def page(self, wanted: RecordFilter, span: Span, limit: int) -> Page:
        """Return the first records of a span that match, at most `limit` and at least one if there is any; fewer when
        they are so large that they would not fit into one message."""
        ...


class CheckpointKey(Protocol):
    """The Ed25519 key that speaks for the log."""

    @property
    def public_key(self) -> bytes:
        """The 32 bytes of the public key."""
        ...

    def sign(self, message: bytes) -> bytes:
        """Return the 64 bytes of the signature."""
        ...


class RelaySink(Protocol):
    """Where the relay tells of records: a copy of the log for others to follow. Its name tells it from other sinks."""

    @property
    def name(self) -> str:
        """The name under which the position is kept."""
        ...

    async def open(self, log_id: str, position: int) -> int:
        """Connect on behalf of a log; return the place to go on from, which is `position`, or an earlier one if the sink
        knows that it has lost what it had acknowledged."""
        ...

    async def publish(self, events: Sequence[CloudEvent]) -> None:
        """Return when all events are acknowledged, in their order and behind all earlier ones.

        Raises SinkError otherwise; the sink may then have taken the first of them, and must be opened again.
        """
        ...

    async def close(self) -> None:
        """Let go of the connection, and of what was not acknowledged. Never raises."""
        ...


class RelaySeat(Protocol):
    """The one seat of the relay among all replicas, and the position that goes with it."""

    async def take(self) -> int | None:
        """Take the seat and return the position, which is the first sequence that is not known to be relayed; None while
        another replica sits there."""
        ...

    async def hold(self) -> None:
        """Make sure that the seat is still held; raises SeatLostError if it is not."""
        ...

    async def advance(self, position: int) -> None:
        """Store the position; it never goes back. Raises SeatLostError, and stores nothing, without the seat."""
        ...

    async def position(self) -> int:
        """Return the position as it is stored, whoever sits there."""
        ...

    async def release(self) -> None:
        """Leave the seat to whoever comes. Never raises."""
        ...


class RelayWatch(Protocol):
    """Those who want to know how the relay is doing."""

    def standing(self, standing: Standing) -> None:
        """Say how far behind the sink is."""
        ...

    def relayed(self, records: int) -> None:
        """Say that so many more are relayed."""
        ...

    def missed(self, records: int) -> None:
        """Say that so many are no longer in the log: their shard was archived before they were relayed."""
        ...

    def failed(self, error: Exception, pause: float) -> None:
        """Say what went wrong, and how long it takes until the next attempt."""
        ...
