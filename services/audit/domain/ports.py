"""Ports of the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from services.audit.domain.model import AppendResult, Entry, LoggedRecord, Page, RecordFilter, Span, TreeHead


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
