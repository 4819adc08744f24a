"""What the domain needs from outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from services.audit.domain.model import Appended, Entry, LoggedRecord, Page, RecordFilter, Span, TreeHead


class LogWriter(Protocol):
    """The end of the log."""

    async def append(self, entries: Sequence[Entry]) -> Appended:
        """Make all entries durable, or none, in their order; an id that the log holds already keeps its old place.

        Never called while an earlier call is under way. Raises AUDIT_UNAVAILABLE when it cannot tell that the entries
        are durable; they may be, and giving them again is safe.
        """
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
