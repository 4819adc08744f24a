"""Keeps the scores of all tools in memory and refreshes them every few seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.errors import MeshError
from libs.common.runtime.tasks import PeriodicTask
from libs.common.sql.engine import separately
from libs.common.telemetry.log import Log
from libs.common.tool_names import ToolName
from services.registry.adapters.postgres.tables import namespaces
from services.registry.adapters.trust.alike_names import AlikeNames
from services.registry.adapters.trust.tables import tool_stages, trust_scores, verifications
from services.registry.domain.trust.facts import VerificationKind
from services.registry.domain.trust.look_alikes import Holder
from services.registry.domain.trust.score import UNPROVEN
from services.registry.domain.trust.stages import Stage
from services.registry.domain.trust.tool_trust import ToolTrust, is_known_publisher, percent

REFRESH_SECONDS = 5.0
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
# Replicas use their own clocks, so scores may arrive with an earlier time than the newest one seen.
_OVERLAP = timedelta(minutes=1)
_HOLDERS = select(namespaces.c.namespace, namespaces.c.provider, namespaces.c.owner)
# The oldest first, so that the newest one of a namespace is read last.
_IDENTITY_VERIFICATIONS = (
    select(verifications.c.tool, verifications.c.passed)
    .where(verifications.c.kind == VerificationKind.PROVIDER_IDENTITY.value)
    .order_by(verifications.c.time, verifications.c.fact_id)
)


class CachedTrustScores:
    """Answers from memory. While the database is down, the last scores stay."""

    def __init__(
        self,
        engine: AsyncEngine,
        log: Log,
        *,
        on_change: Callable[[], None] = lambda: None,
        interval: float = REFRESH_SECONDS,
    ) -> None:
        self._engine, self._log, self._on_change = engine, log, on_change
        self._refresher = PeriodicTask("trust-scores", self._refresh_or_warn, log, interval=interval)
        self._scores: dict[ToolName, float] = {}
        self._times: dict[ToolName, datetime] = {}
        self._stages: Mapping[ToolName, Stage] = {}
        self._known_publishers: frozenset[str] = frozenset()
        self._trusts: dict[ToolName, tuple[int, ToolTrust]] = {}
        self._alike_names = AlikeNames()
        self._revision = 0
        self._seen = _BEGINNING

    def scores_of(self, tools: Iterable[ToolName]) -> Mapping[ToolName, float]:
        """Return the score of each tool, or that of an unproven tool."""
        return {tool: self._scores.get(tool, UNPROVEN) for tool in tools}

    def trust_in(self, tool: ToolName) -> ToolTrust:
        """Return the trust in a tool, or that in an unknown one."""
        held = self._trusts.get(tool)
        return held[1] if held else self._compose(tool)

    def changed_since(self, revision: int) -> tuple[int, Sequence[ToolTrust]]:
        """Return the current revision, and the trust that changed since another one."""
        if revision == self._revision:
            return revision, ()
        return self._revision, [trust for at, trust in self._trusts.values() if at > revision]

    async def start(self) -> None:
        """Read all scores, then refresh them in the background."""
        await self.refresh()
        await self._refresher.start()

    async def stop(self) -> None:
        """Stop refreshing."""
        await self._refresher.stop()

    async def refresh(self) -> None:
        """Read the scores that changed since the last refresh, with an overlap; stages and publishers are few."""
        query = select(trust_scores.c.tool, trust_scores.c.score, trust_scores.c.compute_time)
        async with separately(self._engine) as connection:
            rows = (await connection.execute(query.where(trust_scores.c.compute_time >= self._seen - _OVERLAP))).all()
            stages = (await connection.execute(select(tool_stages.c.tool, tool_stages.c.stage))).all()
            owners = (await connection.execute(_HOLDERS)).all()
            holders = {row.namespace: Holder(row.provider, row.owner) for row in owners}
            resembling = await self._alike_names.refresh(connection, holders)
            verified = (await connection.execute(_IDENTITY_VERIFICATIONS)).all()
        touched = resembling
        for row in rows:
            tool = ToolName.parse(row.tool)
            self._scores[tool], self._times[tool] = row.score, row.compute_time
            self._seen = max(self._seen, row.compute_time)
            touched.add(tool)
        # The newest verification of any tool of a namespace stands for its publisher.
        identified = {ToolName.parse(row.tool).namespace: row.passed for row in verified}
        known = (row.namespace for row in owners if is_known_publisher(row.owner, identified.get(row.namespace, False)))
        touched |= self._replace_stages({ToolName.parse(row.tool): Stage(row.stage) for row in stages})
        touched |= self._replace_publishers(frozenset(known))
        self._note_changes(touched)

    def _replace_stages(self, stages: Mapping[ToolName, Stage]) -> set[ToolName]:
        """Return the tools whose stage is another one now."""
        differing = {tool for tool, _ in stages.items() ^ self._stages.items()}
        self._stages = stages
        return differing

    def _replace_publishers(self, known: frozenset[str]) -> set[ToolName]:
        """Return the tools of publishers that became known, or unknown."""
        differing = known ^ self._known_publishers
        self._known_publishers = known
        return {tool for tool in self._trusts if tool.namespace in differing} if differing else set()

    def _note_changes(self, touched: Iterable[ToolName]) -> None:
        """Note the trust that changed. One that only was computed again leaves cached answers as they are."""
        revision, noted, differs = self._revision + 1, False, False
        for tool in touched:
            trust, held = self._compose(tool), self._trusts.get(tool)
            if held is None or held[1] != trust:
                self._trusts[tool], noted = (revision, trust), True
                differs = differs or held is None or replace(held[1], compute_time=trust.compute_time) != trust
        if noted:
            self._revision = revision
        if differs:
            self._on_change()

    def _compose(self, tool: ToolName) -> ToolTrust:
        return ToolTrust(
            tool,
            percent(self._scores.get(tool, 0.0)),
            self._times.get(tool),
            self._stages.get(tool, Stage.SUBMITTED),
            tool.namespace in self._known_publishers,
            self._alike_names.of(tool),
        )

    async def _refresh_or_warn(self) -> None:
        try:
            await self.refresh()
        except MeshError as error:
            self._log.warning("trust scores cannot be read", reason=error.reason.name)
