"""WatchTools: a snapshot of all versions, then a stream of changes.

The snapshot is read in pages, so a slow watcher holds no transaction open. A page holds versions that have not changed
since the snapshot began. Versions that change in the meantime are read from the log before the snapshot completes, so
every version is reported in the order of its changes and none is missed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from services.registry.domain.catalog.changes import Change, Position
from services.registry.domain.errors import watch_fell_behind
from services.registry.domain.health.health import VersionHealth
from services.registry.domain.health.ports import VersionHealths
from services.registry.domain.model import ToolVersion
from services.registry.domain.ports import ChangeFeed, ChangeLog
from services.registry.domain.trust.ports import TrustScores
from services.registry.domain.trust.tool_trust import ToolTrust

PAGE = 100
TRUST_PAGE = HEALTH_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class VersionUpserted:
    """A version was added or changed."""

    version: ToolVersion
    at: Position | None
    """The position to resume from; None during a snapshot, which cannot be resumed midway."""


@dataclass(frozen=True, slots=True)
class VersionRemoved:
    """A version was removed."""

    name: str
    at: Position | None


@dataclass(frozen=True, slots=True)
class SnapshotComplete:
    """The end of the snapshot. Versions that it did not contain do not exist."""

    at: Position


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The log was polled and has no new changes."""

    at: Position


@dataclass(frozen=True, slots=True)
class TrustChanged:
    """The trust in tools is new or changed."""

    trusts: Sequence[ToolTrust]
    at: Position


@dataclass(frozen=True, slots=True)
class HealthChanged:
    """The health of versions is new or changed."""

    healths: Sequence[VersionHealth]
    at: Position


Event = VersionUpserted | VersionRemoved | SnapshotComplete | Heartbeat | TrustChanged | HealthChanged


async def watch_tools(
    resume_token: str, *, log: ChangeLog, feed: ChangeFeed, trust: TrustScores, health: VersionHealths
) -> AsyncGenerator[Event, None]:
    """Yield events indefinitely. A token outside the range of the log starts a snapshot. A watcher that falls behind
    the range of the log is disconnected, because clients expect a snapshot only at the start of a watch. The trust in
    tools and the health of versions have no log: a watch begins with all of them."""
    revision = health_revision = 0
    position = Position.of_token(resume_token)
    if position is None or not (await log.horizon()).reaches(position):
        async for event in _snapshot(log):
            yield event
            position = event.at
    while position is not None:
        revision, changed = trust.changed_since(revision)
        for start in range(0, len(changed), TRUST_PAGE):
            yield TrustChanged(changed[start : start + TRUST_PAGE], position)
        health_revision, healths = health.changed_since(health_revision)
        for start in range(0, len(healths), HEALTH_PAGE):
            yield HealthChanged(healths[start : start + HEALTH_PAGE], position)
        changes = await feed.changes_after(position)
        for change in changes:
            position = Position(position.epoch, change.sequence)
            yield _event(change, position)
        if not changes:
            yield Heartbeat(position)


async def _snapshot(log: ChangeLog) -> AsyncGenerator[Event, None]:
    start = await log.horizon()
    last_sequence = 0
    while page := await log.unchanged(after=last_sequence, until=start.last, limit=PAGE):
        for version in page:
            yield VersionUpserted(version, None)
        last_sequence = page[-1].head.standing.sequence
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
