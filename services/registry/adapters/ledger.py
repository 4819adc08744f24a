"""The registry in PostgreSQL while one writer holds it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from libs.common.names import ToolName
from services.registry.adapters.rows import HEAD, deprecation_row, head_of, number_of, tool_of
from services.registry.adapters.tables import change_counter, changes, namespaces, tool_names, tool_versions, tools
from services.registry.domain.model import Standing, Tool, ToolVersion, VersionHead

# How far back a watch can resume. Older changes are dropped; who comes with an older token gets a snapshot.
KEPT_CHANGES = 10_000


class PostgresLedger:
    """Reads and writes inside the transaction that holds the counter's lock. Made by `take` only."""

    def __init__(self, connection: AsyncConnection, last: int, kept_changes: int) -> None:
        self._connection = connection
        self._last = last
        self._kept_changes = kept_changes

    @classmethod
    async def take(cls, connection: AsyncConnection, kept_changes: int) -> PostgresLedger:
        """Wait for the lock. A sequence would give numbers that become visible out of order: a watcher that saw 7
        would never look for the 6 of a slower transaction."""
        last = await connection.scalar(select(change_counter.c.last).with_for_update())
        return cls(connection, int(last or 0), kept_changes)

    async def tool(self, name: ToolName) -> Tool | None:
        """Return the tool of exactly this name."""
        row = (await self._connection.execute(select(tools).where(tools.c.name == name.qualified))).first()
        return tool_of(row) if row else None

    async def heads(self, name: ToolName) -> Sequence[VersionHead]:
        """Return the versions of a tool."""
        query = select(*HEAD).where(tool_versions.c.tool == name.qualified)
        return [head_of(row) for row in await self._connection.execute(query)]

    async def namespace_provider(self, namespace: str) -> str | None:
        """Return who owns a namespace."""
        query = select(namespaces.c.provider).where(namespaces.c.namespace == namespace)
        provider: str | None = await self._connection.scalar(query)
        return provider

    async def holders(self, names: Iterable[ToolName]) -> Mapping[ToolName, ToolName]:
        """Return the tool that each name leads to."""
        query = select(tool_names).where(tool_names.c.name.in_([name.qualified for name in names]))
        rows = await self._connection.execute(query)
        return {ToolName.parse(row.name): ToolName.parse(row.tool) for row in rows}

    async def next_sequence(self) -> int:
        """Return the number of the change that this writer makes."""
        return self._last + 1

    async def add(self, version: ToolVersion, tool: Tool, *, registered_through: str) -> None:
        """Store a new version, its tool as it now is, and the change."""
        await self._put_tool(tool)
        await self._connection.execute(insert(tool_versions).values(_version_row(version, registered_through)))
        await self._log(version.head)

    async def _put_tool(self, tool: Tool) -> None:
        row = _tool_row(tool)
        owner = {"namespace": row["namespace"], "provider": tool.provider, "create_time": tool.create_time}
        await self._connection.execute(insert(namespaces).values(owner).on_conflict_do_nothing())
        put = insert(tools).values(row)
        await self._connection.execute(put.on_conflict_do_update(index_elements=["name"], set_=row))
        names = [tool.name, *(ToolName(tool.name.namespace, alias) for alias in tool.aliases)]
        leads = [{"name": name.qualified, "tool": tool.name.qualified} for name in names]
        await self._connection.execute(insert(tool_names).values(leads).on_conflict_do_nothing())

    async def _log(self, head: VersionHead) -> None:
        row = {"tool": head.tool.qualified, "version": str(head.version), **_standing_row(head.standing)}
        await self._connection.execute(insert(changes).values(row))
        await self._connection.execute(update(change_counter).values(last=head.standing.sequence))
        forgotten = head.standing.sequence - self._kept_changes
        await self._connection.execute(delete(changes).where(changes.c.sequence <= forgotten))


def _tool_row(tool: Tool) -> dict[str, Any]:
    return {
        "name": tool.name.qualified,
        "namespace": tool.name.namespace,
        "provider": tool.provider,
        "title": tool.title,
        "tags": list(tool.tags),
        "latest_version": tool.latest_version,
        "aliases": list(tool.aliases),
        "create_time": tool.create_time,
        "update_time": tool.update_time,
    }


def _version_row(version: ToolVersion, registered_through: str) -> dict[str, Any]:
    head, manifest = version.head, version.manifest
    if manifest is None:
        raise ValueError("a version is stored with its manifest")
    return {
        "tool": head.tool.qualified,
        "version": str(head.version),
        "number": number_of(head.version),
        "digest": head.digest,
        "manifest": manifest.document,
        "document": manifest.payload,
        "size": head.size,
        "registered_by": head.registered_by,
        "registered_through": registered_through,
        "create_time": head.create_time,
        **_standing_row(head.standing),
    }


def _standing_row(standing: Standing) -> dict[str, Any]:
    return {
        "state": standing.state.value,
        "state_reason": standing.state_reason,
        "deprecation": deprecation_row(standing.deprecation),
        "update_time": standing.update_time,
        "sequence": standing.sequence,
    }
