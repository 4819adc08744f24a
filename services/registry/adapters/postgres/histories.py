"""Reads transitions, namespaces and due versions from PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Select, cast, select
from sqlalchemy.dialects.postgresql import TIMESTAMP
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.sql.engine import separately
from libs.common.tool_names import ToolName
from services.registry.adapters.postgres.ledger import namespace_of
from services.registry.adapters.postgres.rows import transition_of
from services.registry.adapters.postgres.tables import namespaces, tool_versions, transitions
from services.registry.domain.lifecycle.transitions import Transition
from services.registry.domain.model import LifecycleState
from services.registry.domain.namespaces.ownership import Namespace


class PostgresHistories:
    """Reads in short transactions."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def transitions(self, tool: ToolName, version: str, before: int, limit: int) -> Sequence[Transition]:
        """Return the transitions of a tool, or of one version, newest first."""
        query = select(transitions).where(transitions.c.tool == tool.qualified, transitions.c.sequence < before)
        if version:
            query = query.where(transitions.c.version == version)
        async with separately(self._engine) as connection:
            rows = await connection.execute(query.order_by(transitions.c.sequence.desc()).limit(limit))
            return [transition_of(row) for row in rows]

    async def namespace(self, namespace: str) -> Namespace | None:
        """Return a namespace."""
        async with separately(self._engine) as connection:
            return await namespace_of(connection, namespace)

    async def namespaces(self, after: str, limit: int) -> Sequence[Namespace]:
        """Return namespaces, sorted by name."""
        query = select(namespaces.c.namespace).where(namespaces.c.namespace > after)
        async with separately(self._engine) as connection:
            names = list(await connection.scalars(query.order_by(namespaces.c.namespace).limit(limit)))
            read = [await namespace_of(connection, name) for name in names]
        return [namespace for namespace in read if namespace is not None]

    async def past_sunset(self, now: datetime, limit: int) -> Sequence[str]:
        """Return deprecated versions past their sunset date."""
        return await self._named(_due(LifecycleState.DEPRECATED, "sunset_time", now).limit(limit))

    async def past_grace(self, now: datetime, limit: int) -> Sequence[str]:
        """Return versions past their grace period."""
        return await self._named(_due(LifecycleState.SUNSET, "remove_time", now).limit(limit))

    async def _named(self, query: Select[Any]) -> Sequence[str]:
        async with separately(self._engine) as connection:
            rows = (await connection.execute(query)).all()
        return [ToolName.parse(row.tool).version(row.version) for row in rows]


def _due(state: LifecycleState, date: str, now: datetime) -> Select[Any]:
    when = cast(tool_versions.c.deprecation[date].astext, TIMESTAMP(timezone=True))
    query = select(tool_versions.c.tool, tool_versions.c.version)
    return query.where(tool_versions.c.state == state.value, when <= now).order_by(when)
