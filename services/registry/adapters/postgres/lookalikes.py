"""Names that may look like another, chosen in the database so that not every name has to be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, Text, any_, func, literal, or_, select, union_all
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection

from libs.common.tool_names import ToolName
from services.registry.adapters.postgres.tables import namespaces, tool_names
from services.registry.domain.publishing.scan.confusables import name_skeleton
from services.registry.domain.publishing.scan.lookalikes import CandidateNames, KnownName

# Of each kind. A name has fewer neighbours than this unless somebody registers them on purpose, and one is enough to refuse or to warn.
_MOST = 1_000


async def similar_names(connection: AsyncConnection, candidate: CandidateNames) -> Sequence[KnownName]:
    """Return every taken name, aliases included, that is read as one of the newcomer's, and those of others that are one slip away from it;
    some come that are neither. A namespace is taken from its claim on, before it has a tool; it comes with an empty id."""
    spaces = sorted({name.namespace for name in candidate.names})
    ids = [name.tool_id for name in candidate.names]
    others = (namespaces.c.provider != candidate.provider) | (namespaces.c.owner != candidate.owner)
    alike = or_(*(_read_alike(tool_names.c.tool_id, tool_names.c.skeleton, each) for each in ids))
    near = or_(*(_near(tool_names.c.tool_id, each) for each in ids))
    # One question for each kind: asked together, the names that are read alike could not be looked up.
    kinds = [
        _taken(candidate).where(alike),
        _taken(candidate).where(others, near),
        _claimed().where(others, or_(*map(_resembles, spaces))),
    ]
    rows = await connection.execute(union_all(*(kind.limit(_MOST) for kind in kinds)))
    return [KnownName(ToolName(row.namespace, row.tool_id), row.provider, row.owner) for row in rows]


def skeleton(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return `name_skeleton` as the database works it out."""
    return func.translate(func.replace(func.replace(column, "rn", "m"), "vv", "w"), "01", "ol")


def _taken(candidate: CandidateNames) -> Select[Any]:
    """Names that lead to other tools."""
    whose = tool_names.join(namespaces, namespaces.c.namespace == tool_names.c.namespace)
    named = select(tool_names.c.namespace, tool_names.c.tool_id, namespaces.c.provider, namespaces.c.owner)
    return named.select_from(whose).where(tool_names.c.tool != candidate.tool.qualified)


def _claimed() -> Select[Any]:
    return select(namespaces.c.namespace, literal("", Text).label("tool_id"), namespaces.c.provider, namespaces.c.owner)


def _resembles(space: str) -> ColumnElement[bool]:
    own = namespaces.c.namespace
    return _read_alike(own, skeleton(own), space) | _near(own, space)


def _read_alike(column: ColumnElement[Any], read_as: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    return (column != name) & (read_as == name_skeleton(name))


def _near(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    # One slip leaves either the first half or the second half of a name as it was: quickly asked, and few are left for the rest.
    half = max(len(name) // 2 - 1, 1)
    length = func.length(column).between(len(name) - 1, len(name) + 1)
    halves = or_(func.left(column, half) == name[:half], func.right(column, half) == name[-half:])
    return (column != name) & length & halves & column.like(any_(literal(_slips(name), ARRAY(Text))))


def _slips(name: str) -> list[str]:
    """Return patterns of what one slip makes of a name: all before some place stays as it was, and all behind the letter after it."""
    return [f"{name[:place]}%{name[place + 2 :]}".replace("_", r"\_") for place in range(len(name))]
