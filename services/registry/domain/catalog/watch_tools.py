"""WatchTools: everything there is, then everything that changes.

The snapshot is read in pages, so that a slow watcher holds no transaction open. A page holds the versions that have not
changed since the snapshot began; those that change meanwhile leave the pages and are found in the log instead, before
the snapshot is declared complete. So each version is told in the order of its changes, and none is missed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from services.registry.domain.catalog.changes import Change, Position
from services.registry.domain.errors import watch_fell_behind
from services.registry.domain.model import ToolVersion
from services.registry.domain.ports import ChangeFeed, ChangeLog

PAGE = 100


@dataclass(frozen=True, slots=True)
class VersionUpserted:
    """A version exists or changed."""

    version: ToolVersion
    at: Position | None
    """Where to resume after this; None while a snapshot is under way, which cannot be resumed in its middle."""


@dataclass(frozen=True, slots=True)
class VersionRemoved:
    """A version is gone."""

    name: str
    at: Position | None


@dataclass(frozen=True, slots=True)
class SnapshotComplete:
    """What the snapshot did not mention does not exist."""

    at: Position


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The log was looked at, and says nothing new."""

    at: Position


Event = VersionUpserted | VersionRemoved | SnapshotComplete | Heartbeat


async def watch_tools(resume_token: str, *, log: ChangeLog, feed: ChangeFeed) -> AsyncGenerator[Event, None]:
    """Yield events without end. A token that the log does not reach is answered with a snapshot; a watcher that falls
    behind what the log keeps is sent away, because only at the start of a watch can a snapshot be told from changes."""
    position = Position.of_token(resume_token)
    if position is None or not (await log.horizon()).reaches(position):
        async for event in _snapshot(log):
            yield event
            position = event.at
    while position is not None:
        changes = await feed.changes_after(position)
        for change in changes:
            position = Position(position.epoch, change.sequence)
            yield _event(change, position)
        if not changes:
            yield Heartbeat(position)


async def _snapshot(log: ChangeLog) -> AsyncGenerator[Event, None]:
    start = await log.horizon()
    told = 0
    while page := await log.unchanged(after=told, until=start.last, limit=PAGE):
        for version in page:
            yield VersionUpserted(version, None)
        told = page[-1].head.standing.sequence
    position = Position(start.epoch, start.last)
    end = (await log.horizon()).last
    while position.sequence < end:
        batch = await log.since(position.sequence, PAGE)
        if not batch.horizon.reaches(position) or not batch.changes:
            raise watch_fell_behind()
        for change in batch.changes:
            yield _event(change, None)
        position = Position(start.epoch, batch.changes[-1].sequence)
    yield SnapshotComplete(position)


def _event(change: Change, at: Position | None) -> Event:
    return VersionRemoved(change.name, at) if change.version is None else VersionUpserted(change.version, at)
