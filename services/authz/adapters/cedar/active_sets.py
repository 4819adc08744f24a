"""Keeps compiled policy sets in memory and replaces the active one atomically."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

from libs.common.runtime.single_flight import SingleFlight
from libs.common.telemetry.log import Log
from services.authz.adapters.cedar.compiler import CedarCompiler, PolicySetError
from services.authz.adapters.cedar.engine import CedarEngine
from services.authz.adapters.postgres.policy_sets import PostgresPolicySets
from services.authz.domain.errors import no_decision, policies_not_ready
from services.authz.domain.policies.errors import policies_invalid
from services.authz.domain.policies.model import Documents, NewPolicySet, StoredPolicySet, ValidationResult

# Compiled sets kept beside the active one, for explanations and replays.
_MAX_INACTIVE = 8
# How long the previous set may still decide while this replica compiles the active one.
FOLLOW_SECONDS = 1.0


class ActivePolicySets:
    """Engines by version. `current` switches between two decisions, never within one.

    If the active set takes longer than FOLLOW_SECONDS to compile, decisions fail until it is ready: a replaced set must
    not decide.
    """

    def __init__(
        self, sets: PostgresPolicySets, compiler: CedarCompiler, log: Log, *, follow_seconds: float = FOLLOW_SECONDS
    ) -> None:
        self._sets, self._compiler, self._log, self._follow_seconds = sets, compiler, log, follow_seconds
        self._current: CedarEngine | None = None
        self._active_version, self._behind_since = "", 0.0
        self._engines: dict[str, CedarEngine] = {}
        self._compiling = SingleFlight[str, CedarEngine]()
        self._refreshing = asyncio.Lock()

    @property
    def current(self) -> CedarEngine:
        if self._current is None:
            raise no_decision()
        behind = self._active_version != self._current.version
        if behind and time.monotonic() - self._behind_since > self._follow_seconds:
            raise policies_not_ready()
        return self._current

    @property
    def version(self) -> str:
        """The version of the set that decides in this replica; empty before the first one is loaded."""
        return "" if self._current is None else self._current.version

    @property
    def active_version(self) -> str:
        """The version of the active set as last read from the database, compiled or not."""
        return self._active_version

    async def start(self, first: NewPolicySet) -> None:
        """Store the first set if there is none, and load the active set."""
        if await self._sets.seed(first):
            self._log.info("first policy set stored", version=first.version)
        await self.refresh()

    async def refresh(self) -> None:
        """Switch to the set that is active in the database."""
        async with self._refreshing:
            version = await self._sets.active_version()
            if version and version != self.version:
                if version != self._active_version:
                    self._active_version, self._behind_since = version, time.monotonic()
                engine = await self.engine_for(version)
                if engine is not None:
                    self._current = engine
                    self._log.info("policy set active", version=version)
            elif version:
                # Activated again before its successor was compiled here.
                self._active_version = version

    async def engine_for(self, version: str) -> CedarEngine | None:
        """Return the engine of an active or former set; None if there is no such set. Raises POLICY_INVALID."""
        if version in self._engines:
            return self._engines[version]
        stored = await self._sets.find_version(version)
        if stored is None:
            return None
        if version in self._engines:
            return self._engines[version]
        try:
            return await self._compiling.run(version, lambda: self._compile(stored))
        except PolicySetError as error:
            self._log.error("stored policy set cannot be compiled", version=version)
            raise policies_invalid(error.problems) from error

    async def validate(self, documents: Documents) -> ValidationResult:
        """Validate documents in a thread."""
        version = self._compiler.version(documents)
        problems, count = await asyncio.to_thread(self._compiler.validate, documents)
        return ValidationResult(version, tuple(problems), count)

    async def trial(self, documents: Documents) -> CedarEngine:
        """Return an engine of documents that are not stored. Raises POLICY_INVALID."""
        try:
            compiled = await asyncio.to_thread(self._compiler.compile, documents)
        except PolicySetError as error:
            raise policies_invalid(error.problems) from error
        return CedarEngine(compiled, self._log)

    async def _compile(self, stored: StoredPolicySet) -> CedarEngine:
        compiled = await asyncio.to_thread(self._compiler.compile, stored.documents)
        # A set keeps the version that it was stored under, also after the schema has changed.
        engine = CedarEngine(replace(compiled, version=stored.version), self._log)
        self._evict()
        self._engines[stored.version] = engine
        return engine

    def _evict(self) -> None:
        inactive = [version for version in self._engines if version != self.version]
        for version in inactive[: max(0, len(self._engines) - _MAX_INACTIVE)]:
            del self._engines[version]
