"""The nouns of the log."""

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
    """Return the form under which a text is found again: bounded for the index, and without the one character that
    PostgreSQL's text cannot hold. The record itself keeps the text as it is."""
    return text[:SEARCHABLE_CHARACTERS].replace("\0", "\N{REPLACEMENT CHARACTER}")


class Entry(NamedTuple):
    """A record on its way into the log: the bytes that are hashed, and what it can be found by. A tuple, because a commit
    turns many of them into columns."""

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


def weight_of(entries: Iterable[Entry]) -> int:
    """Return how many bytes of entries are hashed."""
    return sum([len(entry.canonical) for entry in entries])


class LoggedRecord(Struct, frozen=True):
    """A record in its place. One whose payload was erased has no canonical bytes, and says which record erased it."""

    log_id: str
    sequence: int
    canonical: bytes
    leaf_hash: bytes
    log_time: datetime
    shard: int = 0
    erased_by: int | None = None


class Stored(Struct, frozen=True):
    """Entries as one commit stored them: side by side, from `first_sequence` on, at one moment of the database's clock."""

    log_id: str
    shard: int
    first_sequence: int
    log_time: datetime
    entries: Sequence[Entry]
    leaves: Sequence[bytes]
    weight: int
    """How many bytes were hashed."""

    @property
    def end(self) -> int:
        """The sequence behind the last of them."""
        return self.first_sequence + len(self.entries)

    def logged(self, place: int) -> LoggedRecord:
        """Return one of them as its readers see it."""
        canonical, sequence = self.entries[place].canonical, self.first_sequence + place
        return LoggedRecord(self.log_id, sequence, canonical, self.leaves[place], self.log_time, self.shard)


class Appended(Struct, frozen=True):
    """What became of a commit: each entry's place in the log, in the order given, how the log grew, and by what."""

    sequences: list[int]
    added: int
    size: int
    stored: Stored | None = None


class TreeHead(Struct, frozen=True):
    """The end of the log: the open shard and its tree."""

    log_id: str
    tree: CompactRange
    shard: int = 0
    first_sequence: int = 0
    open_time: datetime = EPOCH

    @property
    def size(self) -> int:
        """How many records the whole log holds."""
        return self.first_sequence + self.tree.size

    def grown(self, tree: CompactRange) -> TreeHead:
        """Return the same shard with a larger tree."""
        return TreeHead(self.log_id, tree, self.shard, self.first_sequence, self.open_time)


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """What to look for; what is empty does not narrow."""

    from_time: datetime | None = None
    to_time: datetime | None = None
    subject: str = ""
    tool_prefix: str = ""
    trace_id: str = ""
    invocation_id: str = ""
    authorization: str = ""
    status: str = ""
    ticket: str = ""
    tenant: str = ""
    """Whose records its reader is confined to; what a page holds may still be others' (tenancy.py tells)."""

    def terms(self) -> dict[str, str]:
        """Return what narrows, as text that is equal for equal filters."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: str(value) for name, value in found.items() if value}


@dataclass(frozen=True, slots=True)
class Span:
    """A part of the log, from `first` to just before `end`, read from one of its ends."""

    first: int
    end: int
    ascending: bool

    def after(self, sequence: int) -> Span:
        """Return what is left once everything up to this record has been read."""
        if self.ascending:
            return Span(sequence + 1, self.end, self.ascending)
        return Span(self.first, sequence, self.ascending)


@dataclass(frozen=True, slots=True)
class Page:
    """Records of a span, and whether the span holds more of them."""

    records: list[LoggedRecord]
    more: bool


@dataclass(frozen=True, slots=True)
class SignedCheckpoint:
    """The log's signed word about the first `size` records of a shard."""

    log_id: str
    shard: int
    first_sequence: int
    size: int
    root: bytes
    note: str
    key_id: str
    sign_time: datetime
    cosignatures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Standing:
    """How far the relay's sink is behind the log, and whether this replica is the one that relays."""

    leads: bool
    records_behind: int
    seconds_behind: float
