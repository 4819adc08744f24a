"""Domain model of the log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import NamedTuple

from msgspec import Struct

from services.audit.domain.merkle.merkle import CompactRange

SEARCHABLE_CHARACTERS = 512
LAST_SEQUENCE = 2**63 - 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def searchable(text: str) -> str:
    """Return the indexed form of a text: cut to the index limit, NUL replaced because PostgreSQL cannot store it. The
    record keeps the original text."""
    return text[:SEARCHABLE_CHARACTERS].replace("\0", "\N{REPLACEMENT CHARACTER}")


class Entry(NamedTuple):
    """A record to append: the bytes to hash and the indexed columns. A tuple, because a commit transposes many of them
    into columns."""

    record_id: str
    canonical: bytes
    event_time: datetime
    subject: str
    tool_version: str
    trace_id: str
    invocation_id: str
    authorization: str
    status: str
    ticket: str
    resource: str = ""
    """The resource of an administrative act."""


def payload_bytes_of(entries: Iterable[Entry]) -> int:
    """Return the total size of the canonical bytes."""
    return sum([len(entry.canonical) for entry in entries])


class LoggedRecord(Struct, frozen=True):
    """A stored record. With its payload erased, `canonical` is empty and `erased_by` is the sequence of the erasure
    record."""

    log_id: str
    sequence: int
    canonical: bytes
    leaf_hash: bytes
    log_time: datetime
    shard: int = 0
    erased_by: int | None = None


class Commit(Struct, frozen=True):
    """Entries stored by one commit: contiguous from `first_sequence` on, with one timestamp of the database clock."""

    log_id: str
    shard: int
    first_sequence: int
    log_time: datetime
    entries: Sequence[Entry]
    leaves: Sequence[bytes]
    payload_bytes: int
    """Total size of the canonical bytes."""

    @property
    def end(self) -> int:
        """The sequence after the last entry."""
        return self.first_sequence + len(self.entries)

    def record_at(self, index: int) -> LoggedRecord:
        """Return the entry at an index as a stored record."""
        canonical, sequence = self.entries[index].canonical, self.first_sequence + index
        return LoggedRecord(self.log_id, sequence, canonical, self.leaves[index], self.log_time, self.shard)


class AppendResult(Struct, frozen=True):
    """Result of an append: the sequence of each entry in the order given, how many were new, the log size, and the
    commit if there was one."""

    sequences: list[int]
    added: int
    size: int
    commit: Commit | None = None


class TreeHead(Struct, frozen=True):
    """The head of the log: the open shard and its tree."""

    log_id: str
    tree: CompactRange
    shard: int = 0
    first_sequence: int = 0
    open_time: datetime = EPOCH

    @property
    def size(self) -> int:
        """Number of records in the whole log."""
        return self.first_sequence + self.tree.size

    def with_tree(self, tree: CompactRange) -> TreeHead:
        """Return the head of the same shard with a larger tree."""
        return TreeHead(self.log_id, tree, self.shard, self.first_sequence, self.open_time)


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Criteria of a query. Empty fields do not filter."""

    from_time: datetime | None = None
    to_time: datetime | None = None
    subject: str = ""
    tool_prefix: str = ""
    trace_id: str = ""
    invocation_id: str = ""
    authorization: str = ""
    status: str = ""
    ticket: str = ""
    resource_prefix: str = ""
    acts_only: bool = False
    tenant: str = ""
    """The tenant that the reader is confined to. The database filters only roughly by it; tenancy.py filters exactly.
    """

    def terms(self) -> dict[str, str]:
        """Return the fields that filter, as text; equal filters give equal terms."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: str(value) for name, value in values.items() if value}


@dataclass(frozen=True, slots=True)
class Span:
    """A range of sequences, from `first` to `end` (exclusive), read in one direction."""

    first: int
    end: int
    ascending: bool

    def after(self, sequence: int) -> Span:
        """Return the rest of the span after this record."""
        if self.ascending:
            return Span(sequence + 1, self.end, self.ascending)
        return Span(self.first, sequence, self.ascending)


@dataclass(frozen=True, slots=True)
class Page:
    """Records of a span, and whether the span has more."""

    records: list[LoggedRecord]
    more: bool


@dataclass(frozen=True, slots=True)
class SignedCheckpoint:
    """A signed checkpoint over the first `size` records of a shard."""

    log_id: str
    shard: int
    first_sequence: int
    size: int
    root: bytes
    note: str
    key_id: str
    sign_time: datetime
    cosignatures: tuple[str, ...] = ()
