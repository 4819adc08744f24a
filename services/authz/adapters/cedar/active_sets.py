"""The policies that this replica asks: compiled sets in memory, swapped whole."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

from libs.common.telemetry.log import Log
from services.authz.adapters.cedar.compiler import CedarCompiler, PolicySetError
from services.authz.adapters.cedar.engine import CedarEngine
from services.authz.adapters.postgres.policy_sets import PostgresPolicySets
from services.authz.domain.errors import no_decision, policies_not_ready
from services.authz.domain.policies.errors import policies_invalid
from services.authz.domain.policies.model import Documents, Examination, NewSet, StoredSet

# How many sets stay compiled beside the active one, for explanations and replays.
_KEPT = 8
# How long the set before may still decide here while the active one is compiled, which takes longest where it was not put.
FOLLOW_SECONDS = 1.0


class ActiveSets:
    """Engines by version. `current` changes from one whole set to another between two decisions, never within one. Where the active set takes
    long to be ready, nothing is decided meanwhile rather than by a set that was replaced."""

    def __init__(
        self, sets: PostgresPolicySets, compiler: CedarCompiler, log: Log, *, follow_seconds: float = FOLLOW_SECONDS
    ) -> None:
        self._sets, self._compiler, self._log, self._follow_seconds = sets, compiler, log, follow_seconds
        self._current: CedarEngine | None = None
        self._wanted, self._behind_since = "", 0.0
        self._engines: dict[str, asyncio.Task[CedarEngine]] = {}
        self._refreshing = asyncio.Lock()

    @property
    def current(self) -> CedarEngine:
        if self._current is None:
            raise no_decision()
        if self._wanted != self._current.version and time.monotonic() - self._behind_since > self._follow_seconds:
            raise policies_not_ready()
        return self._current

    @property
    def version(self) -> str:
        """The version of the set that decides here; empty before the first one is there."""
        return "" if self._current is None else self._current.version

    @property
    def wanted(self) -> str:
        """The version of the active set, as soon as it is known here, ready or not."""
        return self._wanted

    async def start(self, first: NewSet) -> None:
        """Make sure that there is a set, and load the active one."""
        if await self._sets.seed(first):
            self._log.info("first policy set put", version=first.version)
        await self.refresh()

    async def refresh(self) -> None:
        """Ask the set from now on that the database says is active."""
        async with self._refreshing:
            version = await self._sets.active_version()
            if version and version != self.version:
                if version != self._wanted:
                    self._wanted, self._behind_since = version, time.monotonic()
                engine = await self.of_version(version)
                if engine is not None:
                    self._current = engine
                    self._log.info("policy set active", version=version)
            elif version:
                # Back to the one that decides, before another was ready.
                self._wanted = version

    async def of_version(self, version: str) -> CedarEngine | None:
        """Return the engine of a set, also of one that was active once; None when there is no such set. Raises POLICY_INVALID."""
        if version not in self._engines:
            stored = await self._sets.of_version(version)
            if stored is None:
                return None
            if version not in self._engines:
                self._make_room()
                self._engines[version] = asyncio.create_task(self._compiled(stored))
        task = self._engines[version]
        try:
            # Whoever runs out of patience leaves the work to whoever comes next.
            return await asyncio.shield(task)
        except PolicySetError as error:
            self._log.error("a kept policy set cannot be used", version=version)
            raise policies_invalid(error.problems) from error
        finally:
            if _failed(task) and self._engines.get(version) is task:
                # For whatever reason: what comes next tries again, or this replica would be without the set until it is started anew.
                del self._engines[version]

    async def examine(self, documents: Documents) -> Examination:
        """Say what is wrong with documents, without holding up other calls."""
        version = self._compiler.version(documents)
        problems, count = await asyncio.to_thread(self._compiler.examine, documents)
        return Examination(version, tuple(problems), count)

    async def _compiled(self, stored: StoredSet) -> CedarEngine:
        compiled = await asyncio.to_thread(self._compiler.compile, stored.documents)
        # The version that it was put under, also after the schema has grown.
        return CedarEngine(replace(compiled, version=stored.version), self._log)

    def _make_room(self) -> None:
        done = [version for version, task in self._engines.items() if task.done() and version != self.version]
        for version in done[: max(0, len(self._engines) - _KEPT)]:
            del self._engines[version]


def _failed(task: asyncio.Task[CedarEngine]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
