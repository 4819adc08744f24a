"""Keeps the health of all versions in memory: follows the change log, executors' announcements and upstreams."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence, Set
from contextlib import aclosing

from sqlalchemy import cast, func, select
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.errors import MeshError
from libs.common.runtime.tasks import PeriodicTask
from libs.common.sql.engine import separately
from libs.common.telemetry.log import Log
from services.registry.adapters.postgres.tables import upstreams
from services.registry.domain.catalog.watch_tools import (
    Event,
    SnapshotComplete,
    VersionRemoved,
    VersionUpserted,
    watch_tools,
)
from services.registry.domain.health.health import Conditions, Dependencies, VersionHealth, assess, dependencies_of
from services.registry.domain.model import ToolVersion
from services.registry.domain.ports import ChangeFeed, ChangeLog
from services.registry.domain.runners.ports import Announcements
from services.registry.domain.trust.ports import TrustScores
from services.registry.domain.upstreams.upstream import UpstreamState

REFRESH_SECONDS = 1.0
_PAUSE_SECONDS = 1.0
# Versions are read in pieces of this many, so that other calls can run.
_PIECE = 50
_DOCUMENT = cast(func.convert_from(upstreams.c.document, "UTF8"), JSONB)
_REVISIONS = select(upstreams.c.upstream_id, upstreams.c.revision)
_SILENT = select(upstreams.c.upstream_id).where(_DOCUMENT["state"].astext == UpstreamState.UNAVAILABLE.value)


class FollowedHealth:
    """Implements VersionHealths. While the database is down, the last health stays."""

    def __init__(
        self,
        engine: AsyncEngine,
        change_log: ChangeLog,
        feed: ChangeFeed,
        trust: TrustScores,
        runners: Announcements,
        log: Log,
        *,
        on_change: Callable[[], None] = lambda: None,
        interval: float = REFRESH_SECONDS,
    ) -> None:
        """`on_change` is called when the health of a version is another one than before."""
        self._engine, self._change_log, self._feed, self._trust = engine, change_log, feed, trust
        self._runners, self._log, self._on_change = runners, log, on_change
        self._refresher = PeriodicTask("version-health", self._refresh_or_warn, log, interval=interval)
        self._follower: asyncio.Task[None] | None = None
        self._dependencies: dict[str, Dependencies] = {}
        self._interned: dict[Dependencies, Dependencies] = {}
        self._mentioned: set[str] = set()
        self._healths: dict[str, tuple[int, VersionHealth]] = {}
        self._upstream_revisions: dict[str, int] = {}
        self._conditions = Conditions()
        self._revision = 0

    def health_of(self, version: ToolVersion) -> VersionHealth:
        """Implement `VersionHealths.health_of`."""
        held = self._healths.get(version.head.name)
        if held is not None or version.manifest is None:
            return held[1] if held else VersionHealth(version.head.name)
        return VersionHealth(version.head.name, *assess(dependencies_of(version.manifest), self._conditions))

    def health_named(self, name: str) -> VersionHealth:
        """Implement `VersionHealths.health_named`."""
        held = self._healths.get(name)
        return held[1] if held else VersionHealth(name)

    def changed_since(self, revision: int) -> tuple[int, Sequence[VersionHealth]]:
        """Implement `VersionHealths.changed_since`."""
        if revision == self._revision:
            return revision, ()
        return self._revision, [health for at, health in self._healths.values() if at > revision]

    async def start(self) -> None:
        """Read the states of upstreams, then follow all changes in the background."""
        await self.refresh()
        await self._refresher.start()
        self._follower = asyncio.create_task(self._follow(), name="version-health-log")

    async def stop(self) -> None:
        """Stop following."""
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.wait({self._follower})
        await self._refresher.stop()

    async def refresh(self) -> None:
        """Compare what versions depend on with what was known, and assess all of them anew if it differs."""
        self._assess_by(await self._silent_upstreams())

    def reassess(self) -> None:
        """Assess all versions again if the announcements have changed. `refresh` reads which upstreams are silent."""
        self._assess_by(self._conditions.silent)

    def _assess_by(self, silent: Set[str]) -> None:
        runners = self._runners.current()
        conditions = Conditions(runners, runners.circuits(), silent)
        if conditions != self._conditions:
            self._conditions = conditions
            self._assess(self._dependencies)

    async def _silent_upstreams(self) -> Set[str]:
        async with separately(self._engine) as connection:
            revisions = {row.upstream_id: row.revision for row in await connection.execute(_REVISIONS)}
            if revisions == self._upstream_revisions:
                return self._conditions.silent
            silent = frozenset((await connection.execute(_SILENT)).scalars())
        self._upstream_revisions = revisions
        return silent

    def _assess(self, names: dict[str, Dependencies]) -> None:
        """Note the versions whose health is new or another one."""
        revision, noted = self._revision + 1, False
        answers = {needed: assess(needed, self._conditions) for needed in set(names.values())}
        for name, needed in names.items():
            health, held = VersionHealth(name, *answers[needed]), self._healths.get(name)
            if held is None or held[1] != health:
                self._healths[name], noted = (revision, health), True
        if noted:
            self._revision = revision
            self._on_change()

    async def _follow(self) -> None:
        token = ""
        while True:
            try:
                watch = watch_tools(token, log=self._change_log, feed=self._feed, trust=self._trust, health=self)
                async with aclosing(watch) as events:
                    applied = 0
                    async for event in events:
                        self._apply(event)
                        token = event.at.token() if event.at else token
                        applied += 1
                        if applied % _PIECE == 0:
                            await asyncio.sleep(0)
            except MeshError as error:
                self._log.info("version health reconnects", reason=error.reason.name)
            except Exception as error:
                # After an unexpected error something may be missing, so everything is read again.
                self._log.error("version health is read again", cause=error)
                token = ""
            self._mentioned.clear()
            await asyncio.sleep(_PAUSE_SECONDS)

    def _apply(self, event: Event) -> None:
        if isinstance(event, VersionUpserted):
            self._upsert(event.version)
        elif isinstance(event, VersionRemoved):
            self._remove(event.name)
        elif isinstance(event, SnapshotComplete):
            for name in self._dependencies.keys() - self._mentioned:
                self._remove(name)

    def _upsert(self, version: ToolVersion) -> None:
        name = version.head.name
        self._mentioned.add(name)
        if name in self._dependencies or version.manifest is None:
            # A manifest never changes.
            return
        needed = dependencies_of(version.manifest)
        # Most versions need the same, so equal ones are held once.
        self._dependencies[name] = self._interned.setdefault(needed, needed)
        self._assess({name: needed})

    def _remove(self, name: str) -> None:
        self._dependencies.pop(name, None)
        self._healths.pop(name, None)
        self._mentioned.discard(name)

    async def _refresh_or_warn(self) -> None:
        try:
            await self.refresh()
        except MeshError as error:
            self._log.warning("the states of upstreams cannot be read", reason=error.reason.name)
