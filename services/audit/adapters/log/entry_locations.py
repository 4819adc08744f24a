"""Where entries lie in the log: those that it held already, and those that a commit has just stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from services.audit.adapters.log.commit import Connection
from services.audit.domain.errors import TakenError
from services.audit.domain.merkle.merkle import leaf_hash
from services.audit.domain.model import EPOCH, Appended, Entry, Stored, TreeHead

# How far a writer's clock may be ahead. A record of a later moment than this behind a shard's opening was made after it,
# and cannot be in an older shard.
SKEW = timedelta(hours=1)
# The leaf hash outlives an erasure, so it is what tells a record that comes again from another one with its id.
_PLACES = "select record_id, sequence, leaf_hash from records where record_id = any(%s::text[])"
_OLDER_PLACES = f"""
{_PLACES} and shard = any(array(select number from shards where close_time >= %s and drop_time is null))
"""  # noqa: S608  (a constant)


def by_id(entries: Iterable[Entry]) -> dict[str, Entry]:
    """Return the entries by their ids. Raises TakenError if two with one id differ."""
    given: dict[str, Entry] = {}
    for entry in entries:
        if given.setdefault(entry.record_id, entry).canonical != entry.canonical:
            raise TakenError({})
    return given


def places_of(connection: Connection, fresh: Mapping[str, Entry]) -> dict[str, int]:
    """Return the places of those entries that the log holds. Raises TakenError if it holds another record by one of their
    ids."""
    return _same(connection.execute(_PLACES, (list(fresh),)).fetchall(), fresh)


def perhaps_older(head: TreeHead, entries: Iterable[Entry]) -> list[Entry]:
    """Return those entries that a shard before the open one may hold."""
    return [entry for entry in entries if entry.event_time <= head.open_time + SKEW] if head.shard else []


def in_older_shards(connection: Connection, head: TreeHead, fresh: Mapping[str, Entry]) -> dict[str, int]:
    """Return the places of those entries that shards before the open one hold; they are asked only when they could. Raises
    TakenError if one holds another record by one of their ids."""
    old = perhaps_older(head, fresh.values())
    if not old:
        return {}
    earliest = max(min(entry.event_time for entry in old), EPOCH) - SKEW
    return _same(connection.execute(_OLDER_PLACES, ([entry.record_id for entry in old], earliest)).fetchall(), fresh)


def _same(rows: Sequence[tuple[str, int, bytes]], fresh: Mapping[str, Entry]) -> dict[str, int]:
    """Return the places that rows name, if all of them are of the records that were given."""
    if any(held != leaf_hash(fresh[record_id].canonical) for record_id, _, held in rows):
        raise TakenError({record_id: held for record_id, _, held in rows})
    return {record_id: place for record_id, place, _ in rows}


def without(fresh: Mapping[str, Entry], known: Mapping[str, int]) -> Mapping[str, Entry]:
    """Return the entries that are not known."""
    return {record_id: entry for record_id, entry in fresh.items() if record_id not in known} if known else fresh


def appended(entries: Sequence[Entry], known: Mapping[str, int], stored: Stored | None, size: int) -> Appended:
    """Return what became of the entries, `known` being the places of those that the log held already."""
    if stored is None:
        return Appended([known[entry.record_id] for entry in entries], 0, size)
    first, added = stored.first_sequence, len(stored.entries)
    if added == len(entries):
        # None of them was there before, so they lie in the order in which they were given.
        return Appended(list(range(first, first + added)), added, size, stored)
    new = {entry.record_id: sequence for sequence, entry in enumerate(stored.entries, start=first)}
    places = {**known, **new}
    return Appended([places[entry.record_id] for entry in entries], added, size, stored)
