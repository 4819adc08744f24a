"""The facts about tools and their scores, in PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from sqlalchemy import Table, and_, func, nulls_first, or_, select, update
from sqlalchemy.dialects.postgresql import distinct_on, insert
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.ids import new_id
from libs.common.names import ToolName
from libs.common.sql.engine import separately, transaction
from services.registry.adapters.tables import tools
from services.registry.adapters.trust_tables import (
    ratings,
    revocations,
    security_audits,
    stage_changes,
    tool_stages,
    trust_scores,
    verifications,
)
from services.registry.domain.trust.facts import (
    Audit,
    AuditLevel,
    Fact,
    OtherTools,
    Rating,
    Ratings,
    StageChange,
    Verification,
    VerificationKind,
)
from services.registry.domain.trust.score import Score
from services.registry.domain.trust.stages import Stage


class PostgresTrustBook:
    """Adds facts and reads them back, each in a short transaction."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def ratings(self, tool: ToolName) -> Ratings:
        """Return the newest rating of each subject, counted and averaged."""
        newest = (
            select(ratings.c.stars)
            .where(ratings.c.tool == tool.qualified)
            .ext(distinct_on(ratings.c.subject))
            .order_by(ratings.c.subject, ratings.c.update_time.desc(), ratings.c.version.desc())
            .subquery()
        )
        async with separately(self._engine) as connection:
            count, average = (await connection.execute(select(func.count(), func.avg(newest.c.stars)))).one()
        return Ratings(count, float(average)) if count else Ratings()

    async def rate(self, rating: Rating) -> None:
        """Store a rating in place of the earlier one."""
        row = {
            "tool": rating.tool.qualified,
            "version": rating.version,
            "subject": rating.subject,
            "stars": rating.stars,
            "comment": rating.comment,
            "update_time": rating.time,
        }
        put = insert(ratings).values(row)
        async with separately(self._engine) as connection:
            await connection.execute(put.on_conflict_do_update(index_elements=["tool", "version", "subject"], set_=row))

    async def audits(self, tool: ToolName, version: str) -> Mapping[AuditLevel, Audit]:
        """Return the newest audit of each level."""
        rows = await self._newest(security_audits, "level", tool, version)
        return {AuditLevel(row["level"]): Audit(**row | {"level": AuditLevel(row["level"])}) for row in rows}

    async def verifications(self, tool: ToolName, version: str) -> Mapping[VerificationKind, Verification]:
        """Return the newest verification of each kind."""
        rows = await self._newest(verifications, "kind", tool, version)
        found = [Verification(**row | {"kind": VerificationKind(row["kind"])}) for row in rows]
        return {each.kind: each for each in found}

    async def record(self, fact: Fact) -> str:
        """Add a fact; the same request again finds the one it added."""
        table = security_audits if isinstance(fact, Audit) else verifications
        row = asdict(fact) | {"tool": fact.tool.qualified, "fact_id": new_id()}
        asked = [table.c[name] == row[name] for name in ("tool", "version", "actor", "request_id")]
        async with transaction(self._engine) as connection:
            added = insert(table).values(row).on_conflict_do_nothing().returning(table.c.fact_id)
            made: str | None = await connection.scalar(added)
            return made or str(await connection.scalar(select(table.c.fact_id).where(*asked)))

    async def stage(self, tool: ToolName) -> Stage:
        """Return where a tool stands."""
        query = select(tool_stages.c.stage).where(tool_stages.c.tool == tool.qualified)
        async with separately(self._engine) as connection:
            return Stage(await connection.scalar(query) or Stage.SUBMITTED)

    async def move_stage(self, change: StageChange) -> bool:
        """Move a tool if it is where the change begins, and record that."""
        name, now = change.tool.qualified, change.time
        first = {"tool": name, "stage": Stage.SUBMITTED.value, "update_time": now}
        here = (tool_stages.c.tool == name, tool_stages.c.stage == change.before.value)
        move = update(tool_stages).where(*here).values(stage=change.after.value, update_time=now)
        kept = {
            "tool": name,
            "from_stage": change.before.value,
            "to_stage": change.after.value,
            "actor": change.actor,
            "reason": change.reason,
            "time": now,
        }
        async with transaction(self._engine) as connection:
            await connection.execute(insert(tool_stages).values(first).on_conflict_do_nothing())
            if await connection.scalar(move.returning(tool_stages.c.tool)) is None:
                return False
            await connection.execute(insert(stage_changes).values(kept))
        return True

    async def revoked(self, tool: ToolName) -> bool:
        """Say whether the tool is revoked."""
        query = select(revocations.c.tool).where(revocations.c.tool == tool.qualified)
        async with separately(self._engine) as connection:
            return await connection.scalar(query) is not None

    async def other_tools(self, besides: ToolName) -> OtherTools:
        """Return what the other tools of a namespace come to by themselves."""
        # Added up where they are: a namespace may have thousands of them.
        query = select(func.count(), func.coalesce(func.avg(trust_scores.c.own), 0.0)).where(
            trust_scores.c.namespace == besides.namespace, trust_scores.c.tool != besides.qualified
        )
        async with separately(self._engine) as connection:
            count, mean = (await connection.execute(query)).one()
        return OtherTools(count, float(mean))

    async def put_score(self, tool: ToolName, score: Score, now: datetime) -> None:
        """Store a score."""
        row = {
            "tool": tool.qualified,
            "namespace": tool.namespace,
            "score": score.value,
            "own": score.own,
            "components": {each.signal.value: each.reading.value for each in score.components},
            "compute_time": now,
        }
        put = insert(trust_scores).values(row).on_conflict_do_update(index_elements=["tool"], set_=row)
        async with separately(self._engine) as connection:
            await connection.execute(put)

    async def unscored(self, since: datetime, limit: int) -> Sequence[tuple[ToolName, bool]]:
        """Return tools whose score is old or missing, those without one first."""
        scored = trust_scores.c.compute_time
        query = (
            select(tools.c.name, scored)
            .select_from(tools.outerjoin(trust_scores, trust_scores.c.tool == tools.c.name))
            .where(or_(scored.is_(None), scored < since))
            .order_by(nulls_first(scored), tools.c.name)
            .limit(limit)
        )
        async with separately(self._engine) as connection:
            return [(ToolName.parse(row.name), row.compute_time is not None) for row in await connection.execute(query)]

    async def _newest(self, table: Table, per: str, tool: ToolName, version: str) -> list[dict[str, Any]]:
        of_it = and_(table.c.tool == tool.qualified, table.c.version == version)
        query = select(table).where(of_it).ext(distinct_on(table.c[per]))
        # Ids are in the order in which they were made, so they decide between facts of one moment.
        query = query.order_by(table.c[per], table.c.time.desc(), table.c.fact_id.desc())
        async with separately(self._engine) as connection:
            rows = [dict(row._mapping) for row in await connection.execute(query)]
        for row in rows:
            row["tool"] = ToolName.parse(row["tool"])
            del row["fact_id"]
        return rows
