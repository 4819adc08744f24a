"""Names that may look like another, chosen in the database so that not every name has to be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from libs.common.names import ToolName
from services.registry.adapters.tables import namespaces, tools
from services.registry.domain.scan.confusables import name_skeleton
from services.registry.domain.scan.lookalikes import KnownName

# Those that are read alike come first, and one of them is enough to refuse. The others are tried for a slip one by one, and of ten
# thousand tools hundreds may begin like one of these.
_MOST = 5_000


async def similar_names(connection: AsyncConnection, names: Sequence[ToolName]) -> Sequence[KnownName]:
    """Return every taken name that is read as one of these or is one slip away from it, and some that are neither. A namespace is taken
    from its claim on, before it has a tool; it then comes with an empty id."""
    tool_id = func.substr(tools.c.name, func.length(tools.c.namespace) + 2)
    spaces = sorted({name.namespace for name in names})
    compared: list[tuple[ColumnElement[Any], str]] = [(namespaces.c.namespace, space) for space in spaces]
    compared += [(tool_id, name.tool_id) for name in names]
    read_alike = func.coalesce(or_(*(_read_alike(column, name) for column, name in compared)), False)
    near = or_(*(_near(column, name) for column, name in compared))
    query = (
        select(
            namespaces.c.namespace,
            func.coalesce(tool_id, "").label("tool_id"),
            func.coalesce(tools.c.provider, namespaces.c.provider).label("provider"),
            namespaces.c.owner,
        )
        .select_from(namespaces.outerjoin(tools, tools.c.namespace == namespaces.c.namespace))
        .where(read_alike | near)
        .order_by(read_alike.desc())
        .limit(_MOST)
    )
    rows = await connection.execute(query)
    return [KnownName(ToolName(row.namespace, row.tool_id), row.provider, row.owner) for row in rows]


def skeleton(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return `name_skeleton` as the database works it out."""
    return func.translate(func.replace(func.replace(column, "rn", "m"), "vv", "w"), "01", "ol")


def _read_alike(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    return (column != name) & (skeleton(column) == name_skeleton(name))


def _near(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    # One slip leaves either the first half or the second half of a name as it was.
    half = max(len(name) // 2 - 1, 1)
    length = func.length(column).between(len(name) - 1, len(name) + 1)
    halves = or_(func.left(column, half) == name[:half], func.right(column, half) == name[-half:])
    return (column != name) & length & halves
