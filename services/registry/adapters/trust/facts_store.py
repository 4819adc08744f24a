"""Trust facts and scores in PostgreSQL."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from sqlalchemy import Table, func, nulls_first, or_, select, tuple_, update
from sqlalchemy.dialects.postgresql import distinct_on, insert
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.audit_client.outbox import ActRecorder
from libs.common.ids import new_id
from libs.common.sql.engine import separately, transaction
from libs.common.tool_names import ToolName
from services.registry.adapters.postgres.acts import fact_recorded, stage_moved
from services.registry.adapters.postgres.tables import tools
from services.registry.adapters.trust.tables import (
    ratings,
    revocations,
    security_audits,
    stage_changes,
    tool_stages,
    trust_scores,
    verifications,
)
from services.registry.domain.model import VersionHead
from services.registry.domain.trust.facts import (
    Audit,
    AuditLevel,
    Fact,
    Facts,
    OtherTools,
    Rating,
    Ratings,
    Verification,
    VerificationKind,
)
from services.registry.domain.trust.score import Score
from services.registry.domain.trust.stages import Stage, StageChange


class PostgresTrustStore:
    """Stores and reads facts, each in a short transaction."""

    def __init__(self, engine: AsyncEngine, acts: ActRecorder) -> None:
        self._engine, self._acts = engine, acts

    async def ratings(self, tool: ToolName) -> Ratings:
        """Return the count and average of the newest rating of each subject."""
        return (await self._ratings([tool.qualified])).get(tool.qualified, Ratings())

    async def facts(self, shown: Sequence[VersionHead]) -> Sequence[Facts]:
        """Return the facts of tools, without usage, with a constant number of queries."""
        names = [head.tool.qualified for head in shown]
        rated, others = await self._ratings(names), await self._others(shown)
        audits = await self._newest(security_audits, "level", shown)
        verified = await self._newest(verifications, "kind", shown)
        return [
            Facts(
                admitted=head.create_time,
                ratings=rated.get(name, Ratings()),
                audits={
                    AuditLevel(row["level"]): Audit(**row | {"level": AuditLevel(row["level"])}) for row in audits[name]
                },
                verifications={
                    VerificationKind(row["kind"]): Verification(**row | {"kind": VerificationKind(row["kind"])})
                    for row in verified[name]
                },
                others=others[name],
            )
            for head, name in zip(shown, names, strict=True)
        ]

    async def rate(self, rating: Rating) -> None:
        """Store a rating; it replaces the earlier one."""
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

    async def record(self, fact: Fact) -> str:
        """Add a fact; a retry returns the existing one."""
        table = security_audits if isinstance(fact, Audit) else verifications
        row = asdict(fact) | {"tool": fact.tool.qualified, "fact_id": new_id()}
        asked = [table.c[name] == row[name] for name in ("tool", "version", "actor", "request_id")]
        async with transaction(self._engine) as connection:
            added = insert(table).values(row).on_conflict_do_nothing().returning(table.c.fact_id)
            made: str | None = await connection.scalar(added)
            if made is not None:
                await connection.execute(self._acts.insertion(fact_recorded(fact, made)))
            return made or str(await connection.scalar(select(table.c.fact_id).where(*asked)))

    async def stage(self, tool: ToolName) -> Stage:
        """Return the stage of a tool."""
        query = select(tool_stages.c.stage).where(tool_stages.c.tool == tool.qualified)
        async with separately(self._engine) as connection:
            return Stage(await connection.scalar(query) or Stage.SUBMITTED)

    async def move_stage(self, change: StageChange) -> bool:
        """Change the stage if the tool is in the expected one, and record the change."""
        name, now = change.tool.qualified, change.time
        first = {"tool": name, "stage": Stage.SUBMITTED.value, "update_time": now}
        here = (tool_stages.c.tool == name, tool_stages.c.stage == change.before.value)
        move = update(tool_stages).where(*here).values(stage=change.after.value, update_time=now)
        record = {
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
            await connection.execute(insert(stage_changes).values(record))
            await connection.execute(self._acts.insertion(stage_moved(change)))
        return True

    async def revoked(self, tool: ToolName) -> bool:
        """Return whether the tool is revoked."""
        query = select(revocations.c.tool).where(revocations.c.tool == tool.qualified)
        async with separately(self._engine) as connection:
            return await connection.scalar(query) is not None

    async def put_scores(self, scores: Mapping[ToolName, Score], now: datetime) -> None:
        """Store scores with one statement."""
        rows = [
            {
                "tool": tool.qualified,
                "namespace": tool.namespace,
                "score": score.value,
                "own": score.own,
                "components": {component.signal.value: component.reading.value for component in score.components},
                "compute_time": now,
            }
            for tool, score in scores.items()
        ]
        put = insert(trust_scores).values(rows)
        changed = {name: put.excluded[name] for name in rows[0] if name != "tool"}
        async with separately(self._engine) as connection:
            await connection.execute(put.on_conflict_do_update(index_elements=["tool"], set_=changed))

    async def unscored(self, since: datetime, limit: int) -> Sequence[tuple[ToolName, bool]]:
        """Return tools with an old or missing score, missing ones first."""
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

    async def _ratings(self, names: Sequence[str]) -> dict[str, Ratings]:
        newest = (
            select(ratings.c.tool, ratings.c.stars)
            .where(ratings.c.tool.in_(names))
            .ext(distinct_on(ratings.c.tool, ratings.c.subject))
            .order_by(ratings.c.tool, ratings.c.subject, ratings.c.update_time.desc(), ratings.c.version.desc())
            .subquery()
        )
        counted = select(newest.c.tool, func.count(), func.avg(newest.c.stars)).group_by(newest.c.tool)
        async with separately(self._engine) as connection:
            return {name: Ratings(count, float(mean)) for name, count, mean in await connection.execute(counted)}

    async def _others(self, shown: Sequence[VersionHead]) -> dict[str, OtherTools]:
        """Return the count and mean own score of the other tools in each tool's namespace."""
        scored, names = trust_scores.c, [head.tool.qualified for head in shown]
        # Summed in the database, because a namespace may have thousands of tools.
        summed = select(scored.namespace, func.count(), func.sum(scored.own)).group_by(scored.namespace)
        theirs = summed.where(scored.namespace.in_({head.tool.namespace for head in shown}))
        async with separately(self._engine) as connection:
            all_of = {row[0]: (row[1], row[2]) for row in await connection.execute(theirs)}
            of_it = select(scored.tool, scored.own).where(scored.tool.in_(names))
            own: dict[str, float] = {row[0]: row[1] for row in await connection.execute(of_it)}
        return {head.tool.qualified: _without_own_score(all_of, own, head.tool) for head in shown}

    async def _newest(
        self, table: Table, per: str, shown: Sequence[VersionHead]
    ) -> defaultdict[str, list[dict[str, Any]]]:
        pairs = [(head.tool.qualified, str(head.version)) for head in shown]
        query = select(table).where(tuple_(table.c.tool, table.c.version).in_(pairs))
        # Ids are ordered by creation time, so they break ties.
        query = query.ext(distinct_on(table.c.tool, table.c[per])).order_by(
            table.c.tool, table.c[per], table.c.time.desc(), table.c.fact_id.desc()
        )
        facts: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        async with separately(self._engine) as connection:
            for row in await connection.execute(query):
                fact = dict(row._mapping) | {"tool": ToolName.parse(row.tool)}
                del fact["fact_id"]
                facts[row.tool].append(fact)
        return facts


def _without_own_score(all_of: Mapping[str, tuple[int, float]], own: Mapping[str, float], tool: ToolName) -> OtherTools:
    count, total = all_of.get(tool.namespace, (0, 0.0))
    if tool.qualified in own:
        count, total = count - 1, total - own[tool.qualified]
    return OtherTools(count, total / count) if count > 0 else OtherTools()
