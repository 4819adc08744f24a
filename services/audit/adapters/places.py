"""Where entries lie in the log: those that it held already, and those that a commit has just stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from services.audit.adapters.commit import Connection
from services.audit.domain.model import EPOCH, Appended, Entry, Stored, TreeHead

# How far a writer's clock may be ahead. A record of a later moment than this behind a shard's opening was made after it,
# and cannot be in an older shard.
SKEW = timedelta(hours=1)
_PLACES = "select record_id, sequence from records where record_id = any(%s::text[])"
_OLDER_PLACES = f"""
{_PLACES} and shard = any(array(select number from shards where close_time >= %s and drop_time is null))
"""  # noqa: S608  (a constant)


def places_of(connection: Connection, record_ids: Iterable[str]) -> dict[str, int]:
    """Return the places of those records that the log holds."""
    return dict(connection.execute(_PLACES, (list(record_ids),)).fetchall())


def perhaps_older(head: TreeHead, entries: Iterable[Entry]) -> list[Entry]:
    """Return those entries that a shard before the open one may hold."""
    return [entry for entry in entries if entry.event_time <= head.open_time + SKEW] if head.shard else []


def in_older_shards(connection: Connection, head: TreeHead, fresh: Mapping[str, Entry]) -> dict[str, int]:
    """Return the places of those entries that shards before the open one hold; they are asked only when they could."""
    old = perhaps_older(head, fresh.values())
    if not old:
        return {}
    earliest = max(min(entry.event_time for entry in old), EPOCH) - SKEW
    return dict(connection.execute(_OLDER_PLACES, ([entry.record_id for entry in old], earliest)).fetchall())


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
