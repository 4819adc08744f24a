"""The catalogue in PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from sqlalchemy import select, tuple_
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.audit_client.outbox import ActRecorder
from libs.common.errors import Violation
from libs.common.sql.engine import separately, transaction
from libs.common.tool_names import ToolName
from services.registry.adapters.postgres.ledger import KEPT_CHANGES, PostgresLedger
from services.registry.adapters.postgres.lookalikes import similar_names
from services.registry.adapters.postgres.rows import HEAD, head_of, manifest_of, tool_of
from services.registry.adapters.postgres.tables import (
    change_counter,
    namespaces,
    tool_names,
    tool_versions,
    tools,
    version_warnings,
)
from services.registry.domain.model import Tool, ToolVersion, VersionHead
from services.registry.domain.ports import Ledger
from services.registry.domain.publishing.scan.lookalikes import CandidateNames, KnownName


class PostgresCatalogue:
    """Reads in short transactions; writes one change at a time."""

    def __init__(self, engine: AsyncEngine, acts: ActRecorder, *, kept_changes: int = KEPT_CHANGES) -> None:
        self._engine, self._acts = engine, acts
        self._kept_changes = kept_changes
        # Writers of all replicas queue for one row lock. Writers of this process queue here, so that they use only one
        # connection of the pool.
        self._writer = asyncio.Lock()

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[Ledger]:
        """Lock the registry for one change."""
        async with self._writer, transaction(self._engine) as connection:
            yield await PostgresLedger.acquire(connection, self._kept_changes, self._acts)

    async def tool(self, name: ToolName) -> Tool | None:
        """Return the tool of a name or an alias."""
        query = select(tools).join(tool_names, tool_names.c.tool == tools.c.name)
        async with separately(self._engine) as connection:
            row = (await connection.execute(query.where(tool_names.c.name == name.qualified))).first()
        return tool_of(row) if row else None

    async def tools(self, *, namespace: str, tags: Sequence[str], after: str, limit: int) -> Sequence[Tool]:
        """Return tools, sorted by qualified name."""
        if any("\0" in text for text in (namespace, *tags)):
            # PostgreSQL rejects null characters, and no admitted tool has them.
            return []
        query = select(tools).where(tools.c.name > after).order_by(tools.c.name).limit(limit)
        if namespace:
            query = query.where(tools.c.namespace == namespace)
        if tags:
            query = query.where(tools.c.tags.contains(list(tags)))
        async with separately(self._engine) as connection:
            return [tool_of(row) for row in await connection.execute(query)]

    async def heads(self, names: Sequence[ToolName]) -> Sequence[VersionHead]:
        """Return all versions of these tools."""
        if not names:
            return []
        query = select(*HEAD).where(tool_versions.c.tool.in_([name.qualified for name in names]))
        async with separately(self._engine) as connection:
            return [head_of(row) for row in await connection.execute(query)]

    async def with_manifests(self, heads: Sequence[VersionHead]) -> Sequence[ToolVersion]:
        """Return the versions with their manifests, in the order given."""
        if not heads:
            return []
        key = tuple_(tool_versions.c.tool, tool_versions.c.version)
        wanted = [(head.tool.qualified, str(head.version)) for head in heads]
        query = select(tool_versions.c.tool, tool_versions.c.version, tool_versions.c.document).where(key.in_(wanted))
        async with separately(self._engine) as connection:
            rows = {(row.tool, row.version): row.document for row in await connection.execute(query)}
        return [ToolVersion(head, manifest_of(rows[name])) for head, name in zip(heads, wanted, strict=True)]

    async def warnings(self, head: VersionHead) -> Sequence[Violation]:
        """Return the scan warnings of a version."""
        here = (version_warnings.c.tool == head.tool.qualified, version_warnings.c.version == str(head.version))
        async with separately(self._engine) as connection:
            stored = await connection.scalar(select(version_warnings.c.warnings).where(*here))
        return [Violation(**warning) for warning in stored or ()]

    async def owner_of(self, namespace: str) -> str | None:
        """Return the owner of a namespace; None if it has none."""
        async with separately(self._engine) as connection:
            owner: str | None = await connection.scalar(
                select(namespaces.c.owner).where(namespaces.c.namespace == namespace)
            )
        return owner

    async def last_change(self) -> int:
        """Return the number of the last committed change."""
        async with separately(self._engine) as connection:
            return int(await connection.scalar(select(change_counter.c.last)) or 0)

    async def similar_names(self, candidate: CandidateNames, *, since: int = 0) -> Sequence[KnownName]:
        """Return the names that may resemble the candidate's."""
        async with separately(self._engine) as connection:
            return await similar_names(connection, candidate, since)
