"""Ports of the log and the relay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from services.audit.domain.model import (
    AppendResult,
    Entry,
    LoggedRecord,
    Page,
    RecordFilter,
    RelayStatus,
    Span,
    TreeHead,
)
from services.audit.domain.relay.cloudevent import CloudEvent


class LogWriter(Protocol):
    """Appends to the log."""

    async def append(self, entries: Sequence[Entry]) -> AppendResult:
        """Store all entries in order, or none. A record that the log already has keeps its sequence.

        Calls never overlap. Raises AUDIT_UNAVAILABLE when the commit is not confirmed; the entries may or may not be
        stored, and appending them again is safe. Raises RecordIdTakenError, and stores nothing, when an entry has the
        id of a record with other bytes, in the log or among the entries.
        """
        ...

    def prepare_next(self, entries: Sequence[Entry]) -> None:
        """Prepare the next commit while another one is running. The next `append` gets this same sequence object."""
        ...


class LogReader(Protocol):
    """Reads committed records. Every result shows the log without gaps up to some size."""

    async def head(self) -> TreeHead:
        """Return the head over everything committed before this call."""
        ...

    async def get_by_sequence(self, log_id: str, sequence: int) -> LoggedRecord | None:
        """Return the record at a sequence of this log."""
        ...

    async def get_by_record_id(self, record_id: str) -> LoggedRecord | None:
        """Return the record with this id."""
        ...

    async def page(self, record_filter: RecordFilter, span: Span, limit: int) -> Page:
        """Return the first matching records of a span: at least one if there is any, at most `limit`, and fewer if they
        would not fit into one message."""
        ...


class CheckpointKey(Protocol):
    """The Ed25519 key that signs checkpoints."""

    @property
    def public_key(self) -> bytes:
        """The public key, 32 bytes."""
        ...

    def sign(self, message: bytes) -> bytes:
        """Return the signature, 64 bytes."""
        ...


class RelaySink(Protocol):
    """Receives the log as CloudEvents. Positions are stored by the name of the sink."""

    @property
    def name(self) -> str:
        """The name under which the position is stored."""
        ...

    async def open(self, log_id: str, position: int) -> int:
        """Connect for a log. Return the sequence to continue from: `position`, or an earlier one if the sink lost
        acknowledged events."""
        ...

    async def publish(self, events: Sequence[CloudEvent]) -> None:
        """Return when all events are acknowledged, in order and after all earlier ones.

        Raises SinkError otherwise. The sink may then have stored the first events, and must be opened again.
        """
        ...

    async def close(self) -> None:
        """Close the connection and discard unacknowledged events. Never raises."""
        ...


class RelayLease(Protocol):
    """The relay's lease, held by one replica at a time, and the stored position."""

    async def acquire(self) -> int | None:
        """Acquire the lease and return the position, the first sequence not known to be relayed. None while another
        replica holds it."""
        ...

    async def renew(self) -> None:
        """Confirm that the lease is still held; raises LeaseLostError otherwise."""
        ...

    async def advance(self, position: int) -> None:
        """Store the position, which never decreases. Raises LeaseLostError, and stores nothing, without the lease."""
        ...

    async def position(self) -> int:
        """Return the stored position, with or without the lease."""
        ...

    async def release(self) -> None:
        """Release the lease. Never raises."""
        ...


class RelayObserver(Protocol):
    """Receives the state of the relay."""

    def report_status(self, status: RelayStatus) -> None:
        """Report the lag of the sink."""
        ...

    def report_relayed(self, records: int) -> None:
        """Report newly relayed records."""
        ...

    def report_missed(self, records: int) -> None:
        """Report records whose shard was archived before they were relayed."""
        ...

    def report_failure(self, error: Exception, pause: float) -> None:
        """Report a failure and the pause before the next attempt."""
        ...
