"""The change log in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import and_, func, select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from libs.common.sql.engine import separately
from libs.common.tool_names import ToolName
from services.registry.adapters.postgres.rows import HEAD, IMMUTABLE, STANDING, head_of, manifest_of
from services.registry.adapters.postgres.tables import change_counter, changes, tool_versions, tools
from services.registry.domain.catalog.changes import Change, ChangeBatch, Horizon
from services.registry.domain.model import ToolVersion


class PostgresChangeLog:
    """Reads committed changes of all replicas, in order."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def horizon(self) -> Horizon:
        """Return the current range of the log."""
        async with separately(self._engine) as connection:
            return await _horizon(connection)

    async def since(self, sequence: int, limit: int) -> ChangeBatch:
        """Return changes after a number. A change of a version that no longer exists is reported as a removal."""
        same = and_(changes.c.tool == tool_versions.c.tool, changes.c.version == tool_versions.c.version)
        # The standing comes from the change; the immutable columns come from the version.
        mutable = [changes.c[name] for name in STANDING]
        named = [changes.c.tool.label("changed_tool"), changes.c.version.label("changed_version")]
        query = (
            select(*IMMUTABLE, *mutable, *named, tool_versions.c.document, tools.c.aliases)
            .select_from(changes.outerjoin(tool_versions, same).outerjoin(tools, tools.c.name == changes.c.tool))
            .where(changes.c.sequence > sequence)
            .order_by(changes.c.sequence)
            .limit(limit)
        )
        async with separately(self._engine) as connection:
            rows = (await connection.execute(query)).all()
            # Read after the changes, so that the horizon includes them.
            horizon = await _horizon(connection)
        return ChangeBatch(horizon, [_change(row) for row in rows])

    async def unchanged(self, *, after: int, until: int, limit: int) -> Sequence[ToolVersion]:
        """Return versions, sorted by the number of their last change."""
        last_change = tool_versions.c.sequence
        query = (
            select(*HEAD, tool_versions.c.document, tools.c.aliases)
            .join(tools, tools.c.name == tool_versions.c.tool)
            .where(last_change > after, last_change <= until)
            .order_by(last_change)
            .limit(limit)
        )
        async with separately(self._engine) as connection:
            return [_version(row) for row in await connection.execute(query)]


async def _horizon(connection: AsyncConnection) -> Horizon:
    oldest = select(func.min(changes.c.sequence)).scalar_subquery()
    query = select(change_counter.c.epoch, change_counter.c.last, func.coalesce(oldest, change_counter.c.last + 1))
    epoch, last, first = (await connection.execute(query)).one()
    return Horizon(epoch, first, last)


def _change(row: Any) -> Change:
    name = ToolName.parse(row.changed_tool).version(row.changed_version)
    gone = row.state is None or row.tool is None
    return Change(row.sequence, name, None if gone else _version(row))


def _version(row: Any) -> ToolVersion:
    return ToolVersion(head_of(row), manifest_of(row.document), tuple(row.aliases))
