"""Keeps the scores of all tools in memory and refreshes them every few seconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.errors import MeshError
from libs.common.runtime.tasks import PeriodicTask
from libs.common.sql.engine import separately
from libs.common.telemetry.log import Log
from libs.common.tool_names import ToolName
from services.registry.adapters.trust.tables import trust_scores
from services.registry.domain.trust.score import UNPROVEN

REFRESH_SECONDS = 5.0
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
# Replicas use their own clocks, so scores may arrive with an earlier time than the newest one seen.
_OVERLAP = timedelta(minutes=1)


class CachedTrustScores:
    """Answers from memory. While the database is down, the last scores stay."""

    def __init__(self, engine: AsyncEngine, log: Log, *, interval: float = REFRESH_SECONDS) -> None:
        self._engine, self._log = engine, log
        self._refresher = PeriodicTask("trust-scores", self._refresh_or_warn, log, interval=interval)
        self._scores: dict[ToolName, float] = {}
        self._seen = _BEGINNING

    def scores_of(self, tools: Iterable[ToolName]) -> Mapping[ToolName, float]:
        """Return the score of each tool, or that of an unproven tool."""
        return {tool: self._scores.get(tool, UNPROVEN) for tool in tools}

    async def start(self) -> None:
        """Read all scores, then refresh them in the background."""
        await self.refresh()
        await self._refresher.start()

    async def stop(self) -> None:
        """Stop refreshing."""
        await self._refresher.stop()

    async def refresh(self) -> None:
        """Read the scores that changed since the last refresh, with an overlap."""
        query = select(trust_scores.c.tool, trust_scores.c.score, trust_scores.c.compute_time)
        async with separately(self._engine) as connection:
            rows = (await connection.execute(query.where(trust_scores.c.compute_time >= self._seen - _OVERLAP))).all()
        for row in rows:
            self._scores[ToolName.parse(row.tool)] = row.score
            self._seen = max(self._seen, row.compute_time)

    async def _refresh_or_warn(self) -> None:
        try:
            await self.refresh()
        except MeshError as error:
            self._log.warning("trust scores cannot be read", reason=error.reason.name)
