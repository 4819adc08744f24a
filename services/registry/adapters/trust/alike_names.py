"""Keeps the pairs of alike names in memory, and what is shown of them for each tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from libs.common.tool_names import ToolName
from services.registry.adapters.postgres.tables import alike_names, tools
from services.registry.adapters.trust.tables import revocations
from services.registry.domain.trust.look_alikes import AlikePair, Holder, LookAlike, look_alikes_of, shown_pairs


class AlikeNames:
    """Reads new pairs only; pairs are never changed."""

    def __init__(self) -> None:
        self._pairs: list[AlikePair] = []
        self._seen = 0
        self._shown: Mapping[str, Sequence[LookAlike]] = {}
        self._basis: tuple[int, Mapping[str, Holder], frozenset[str]] = (0, {}, frozenset())

    def of(self, tool: ToolName) -> tuple[LookAlike, ...]:
        """Return the names that are shown for a tool."""
        return look_alikes_of(tool, self._shown)

    async def refresh(self, connection: AsyncConnection, holders: Mapping[str, Holder]) -> set[ToolName]:
        """Read what changed, and return the tools for which something else is shown now."""
        query = select(alike_names).where(alike_names.c.sequence > self._seen).order_by(alike_names.c.sequence)
        for row in await connection.execute(query):
            self._pairs.append(AlikePair(row.newer, row.older, row.kind))
            self._seen = row.sequence
        if not self._pairs:
            return set()
        revoked = frozenset(await connection.scalars(select(revocations.c.tool)))
        basis = (self._seen, holders, revoked)
        if basis == self._basis:
            return set()
        before, self._shown = self._shown, shown_pairs(self._pairs, holders, revoked)
        self._basis = basis
        names = {name for name in before.keys() | self._shown.keys() if before.get(name) != self._shown.get(name)}
        return await _tools_of(connection, names)


async def _tools_of(connection: AsyncConnection, names: set[str]) -> set[ToolName]:
    """Return the tools with these qualified names and those of these namespaces."""
    if not names:
        return set()
    query = select(tools.c.name).where(tools.c.name.in_(names) | tools.c.namespace.in_(names))
    return {ToolName.parse(name) for name in await connection.scalars(query)}
