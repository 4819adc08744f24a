"""WatchTools for a caller: the events about versions that policy lets it call.

A caller is told nothing of a version that it may not call. One that becomes forbidden is reported as removed, and one
that becomes callable as added.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace

from libs.common.runtime.clock import Clock
from services.registry.domain.catalog.changes import Position
from services.registry.domain.catalog.watch_tools import (
    Event,
    HealthChanged,
    TrustChanged,
    VersionRemoved,
    VersionUpserted,
)
from services.registry.domain.model import ToolVersion, Usability, VersionHead
from services.registry.domain.ports import CallPolicy, Catalogue

# Policies and grants change without an event, so everything is asked about again after so many seconds.
ASK_AGAIN_SECONDS = 30.0
# Versions of a snapshot are asked about together.
_BATCH = 100


async def watch_usable(
    events: AsyncGenerator[Event, None], *, catalogue: Catalogue, policy: CallPolicy, clock: Clock
) -> AsyncGenerator[Event, None]:
    """Yield the events of a watch that begins with a snapshot, as far as they concern versions that the caller may
    call."""
    view, batch = _View(catalogue, policy), list[ToolVersion]()
    asked_at = clock.monotonic()
    async with aclosing(events):
        async for event in events:
            if isinstance(event, VersionUpserted) and event.at is None:
                batch.append(event.version)
                if len(batch) < _BATCH:
                    continue
            if batch:
                async for shown in view.apply(batch, None):
                    yield shown
                batch = []
            async for shown in view.filter(event):
                yield shown
            # Not with heartbeats alone: a registry that changes all the time has none.
            if event.at is not None and clock.monotonic() - asked_at >= ASK_AGAIN_SECONDS:
                async for shown in view.ask_again(event.at):
                    yield shown
                asked_at = clock.monotonic()


class _View:
    """The versions that exist, and those that the caller was shown."""

    def __init__(self, catalogue: Catalogue, policy: CallPolicy) -> None:
        self._catalogue, self._policy = catalogue, policy
        self._heads: dict[str, VersionHead] = {}
        self._shown: set[str] = set()

    async def filter(self, event: Event) -> AsyncIterator[Event]:
        """Yield what the caller is told of an event."""
        if isinstance(event, VersionUpserted):
            if event.at is not None:
                async for shown in self.apply([event.version], event.at):
                    yield shown
        elif isinstance(event, VersionRemoved):
            self._heads.pop(event.name, None)
            if event.name in self._shown:
                self._shown.discard(event.name)
                yield event
        elif isinstance(event, TrustChanged):
            tools = {trust.tool for trust in event.trusts}
            async for shown in self._ask([head for head in self._heads.values() if head.tool in tools], event.at):
                yield shown
            usable = {self._heads[name].tool for name in self._shown}
            if trusts := [trust for trust in event.trusts if trust.tool in usable]:
                yield replace(event, trusts=trusts)
        elif isinstance(event, HealthChanged):
            heads = [self._heads[health.name] for health in event.healths if health.name in self._heads]
            async for shown in self._ask(heads, event.at):
                yield shown
            if healths := [health for health in event.healths if health.name in self._shown]:
                yield replace(event, healths=healths)
        else:
            yield event

    async def apply(self, versions: Sequence[ToolVersion], at: Position | None) -> AsyncIterator[Event]:
        """Yield added and changed versions that the caller may call, and remove those that it may not call any
        more."""
        self._heads |= {version.head.name: version.head for version in versions}
        answers = await self._policy.usability_of([version.head for version in versions])
        for version, usability in zip(versions, answers, strict=True):
            name = version.head.name
            if usability is not Usability.FORBIDDEN:
                self._shown.add(name)
                yield VersionUpserted(version, at)
            elif name in self._shown:
                self._shown.discard(name)
                yield VersionRemoved(name, at)

    async def ask_again(self, at: Position) -> AsyncIterator[Event]:
        """Yield what changed for the caller although no version did."""
        async for event in self._ask(list(self._heads.values()), at):
            yield event

    async def _ask(self, heads: Sequence[VersionHead], at: Position) -> AsyncIterator[Event]:
        answers = await self._policy.usability_of(heads) if heads else ()
        usable = {head.name for head, answer in zip(heads, answers, strict=True) if answer is not Usability.FORBIDDEN}
        for head in heads:
            if head.name in self._shown and head.name not in usable:
                self._shown.discard(head.name)
                yield VersionRemoved(head.name, at)
        added = [head for head in heads if head.name in usable and head.name not in self._shown]
        for version in await self._catalogue.with_manifests(added) if added else ():
            self._shown.add(version.head.name)
            yield VersionUpserted(version, at)
