"""Names that may look like another, chosen in the database so that not every name has to be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from libs.common.names import ToolName
from services.registry.adapters.tables import tools
from services.registry.domain.scan.confusables import name_skeleton
from services.registry.domain.scan.lookalikes import KnownName

# Enough to refuse or warn; a registry full of look-alikes need not be listed to each of them.
_MOST = 64


async def similar_names(connection: AsyncConnection, names: Sequence[ToolName]) -> Sequence[KnownName]:
    """Return every taken name that is read as one of these or is one slip away from it, and some that are neither."""
    spaces = {name.namespace for name in names}
    tool_id = func.substr(tools.c.name, func.length(tools.c.namespace) + 2)
    alike = [_alike(tools.c.namespace, space) for space in spaces]
    alike += [_alike(tool_id, name.tool_id) for name in names]
    query = select(tools.c.name, tools.c.provider).where(or_(*alike)).limit(_MOST)
    return [KnownName(ToolName.parse(row.name), row.provider) for row in await connection.execute(query)]


def skeleton(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return `name_skeleton` as the database works it out."""
    return func.translate(func.replace(func.replace(column, "rn", "m"), "vv", "w"), "01", "ol")


def _alike(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    # One slip leaves either the first half or the second half of a name as it was.
    half = max(len(name) // 2 - 1, 1)
    near = func.length(column).between(len(name) - 1, len(name) + 1)
    halves = or_(func.left(column, half) == name[:half], func.right(column, half) == name[-half:])
    other = column != name
    return other & ((skeleton(column) == name_skeleton(name)) | (near & halves))
