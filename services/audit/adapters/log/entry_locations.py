"""Finds the sequences of entries that the log already has, and builds the result of an append."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from services.audit.adapters.log.commit import Connection
from services.audit.domain.errors import RecordIdTakenError
from services.audit.domain.merkle.merkle import leaf_hash
from services.audit.domain.model import EPOCH, AppendResult, Commit, Entry, TreeHead

# Maximum clock skew of writers. A record made later than this after the opening of a shard cannot be in an older shard.
MAX_CLOCK_SKEW = timedelta(hours=1)
# The leaf hash survives erasure, so it tells a repeated record from another one with the same id.
_FIND_SEQUENCES = "select record_id, sequence, leaf_hash from records where record_id = any(%s::text[])"
_FIND_IN_CLOSED_SHARDS = f"""
{_FIND_SEQUENCES} and shard = any(array(select number from shards where close_time >= %s and drop_time is null))
"""  # noqa: S608  (a constant)


def index_by_id(entries: Iterable[Entry]) -> dict[str, Entry]:
    """Return the entries by id. Raises RecordIdTakenError if two entries with one id differ."""
    entries_by_id: dict[str, Entry] = {}
    for entry in entries:
        if entries_by_id.setdefault(entry.record_id, entry).canonical != entry.canonical:
            raise RecordIdTakenError({})
    return entries_by_id


def find_sequences(connection: Connection, fresh: Mapping[str, Entry]) -> dict[str, int]:
    """Return the sequences of the entries that the log has. Raises RecordIdTakenError if it has a different record with
    one of the ids."""
    return _require_same_records(connection.execute(_FIND_SEQUENCES, (list(fresh),)).fetchall(), fresh)


def possibly_in_closed_shards(head: TreeHead, entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries that may be in a shard before the open one."""
    return [entry for entry in entries if entry.event_time <= head.open_time + MAX_CLOCK_SKEW] if head.shard else []


def find_in_closed_shards(connection: Connection, head: TreeHead, fresh: Mapping[str, Entry]) -> dict[str, int]:
    """Return the sequences of the entries that closed shards have; queried only if possible. Raises RecordIdTakenError
    if one has a different record with one of the ids."""
    old = possibly_in_closed_shards(head, fresh.values())
    if not old:
        return {}
    earliest = max(min(entry.event_time for entry in old), EPOCH) - MAX_CLOCK_SKEW
    return _require_same_records(
        connection.execute(_FIND_IN_CLOSED_SHARDS, ([entry.record_id for entry in old], earliest)).fetchall(), fresh
    )


def _require_same_records(rows: Sequence[tuple[str, int, bytes]], fresh: Mapping[str, Entry]) -> dict[str, int]:
    """Return the sequences of the rows if all rows are the given records."""
    if any(held != leaf_hash(fresh[record_id].canonical) for record_id, _, held in rows):
        raise RecordIdTakenError({record_id: held for record_id, _, held in rows})
    return {record_id: sequence for record_id, sequence, _ in rows}


def exclude(fresh: Mapping[str, Entry], known: Mapping[str, int]) -> Mapping[str, Entry]:
    """Return the entries that are not known."""
    return {record_id: entry for record_id, entry in fresh.items() if record_id not in known} if known else fresh


def build_append_result(
    entries: Sequence[Entry], known: Mapping[str, int], commit: Commit | None, size: int
) -> AppendResult:
    """Return the result of an append; `known` are the sequences of the entries that the log already had."""
    if commit is None:
        return AppendResult([known[entry.record_id] for entry in entries], 0, size)
    first, added = commit.first_sequence, len(commit.entries)
    if added == len(entries):
        # All entries are new, so they are stored in the order given.
        return AppendResult(list(range(first, first + added)), added, size, commit)
    new = {entry.record_id: sequence for sequence, entry in enumerate(commit.entries, start=first)}
    sequences = {**known, **new}
    return AppendResult([sequences[entry.record_id] for entry in entries], added, size, commit)
