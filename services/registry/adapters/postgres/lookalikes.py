"""Preselects similar names in the database, so that not every name is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, Text, any_, func, literal, or_, select, union_all
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection

from libs.common.tool_names import ToolName
from services.registry.adapters.postgres.tables import namespaces, tool_names, tool_versions
from services.registry.domain.publishing.scan.confusables import name_skeleton
from services.registry.domain.publishing.scan.lookalikes import CandidateNames, KnownName

# Per kind. Only deliberate registrations exceed it, and one match is enough to refuse or warn.
_MOST = 1_000


async def similar_names(connection: AsyncConnection, candidate: CandidateNames, since: int = 0) -> Sequence[KnownName]:
    """Return existing names and aliases that look like the candidate's, and foreign names that are one edit away; a
    superset. A claimed namespace without tools has an empty tool id. With `since`, only names of tools that changed
    after this change number, because other writers wait for the lock meanwhile."""
    spaces = sorted({name.namespace for name in candidate.names})
    ids = [name.tool_id for name in candidate.names]
    others = (namespaces.c.provider != candidate.provider) | (namespaces.c.owner != candidate.owner)
    alike = or_(*(_looks_like(tool_names.c.tool_id, tool_names.c.skeleton, tool_id) for tool_id in ids))
    near = or_(*(_is_one_edit_away(tool_names.c.tool_id, tool_id) for tool_id in ids))
    # Separate queries, because a combined one could not use the index on skeletons.
    kinds = [
        _existing_names(candidate, since).where(alike),
        _existing_names(candidate, since).where(others, near),
        _claimed_namespaces().where(others, or_(*map(_resembles, spaces))),
    ]
    rows = await connection.execute(union_all(*(kind.limit(_MOST) for kind in kinds)))
    return [KnownName(ToolName(row.namespace, row.tool_id), row.provider, row.owner, row.tool) for row in rows]


def skeleton(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return `name_skeleton` as an SQL expression."""
    return func.translate(func.replace(func.replace(column, "rn", "m"), "vv", "w"), "01", "ol")


def _existing_names(candidate: CandidateNames, since: int) -> Select[Any]:
    """Select the names of other tools."""
    whose = tool_names.join(namespaces, namespaces.c.namespace == tool_names.c.namespace)
    held = (namespaces.c.provider, namespaces.c.owner, tool_names.c.tool)
    named = select(tool_names.c.namespace, tool_names.c.tool_id, *held)
    existing = named.select_from(whose).where(tool_names.c.tool != candidate.tool.qualified)
    changed = select(tool_versions.c.tool).where(tool_versions.c.sequence > since)
    return existing.where(tool_names.c.tool.in_(changed)) if since else existing


def _claimed_namespaces() -> Select[Any]:
    none = literal("", Text)
    held = (namespaces.c.provider, namespaces.c.owner, none.label("tool"))
    return select(namespaces.c.namespace, none.label("tool_id"), *held)


def _resembles(space: str) -> ColumnElement[bool]:
    own = namespaces.c.namespace
    return _looks_like(own, skeleton(own), space) | _is_one_edit_away(own, space)


def _looks_like(column: ColumnElement[Any], read_as: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    return (column != name) & (read_as == name_skeleton(name))


def _is_one_edit_away(column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
    # One edit leaves the first or the second half of a name unchanged, so this cheap test comes first.
    half = max(len(name) // 2 - 1, 1)
    length = func.length(column).between(len(name) - 1, len(name) + 1)
    halves = or_(func.left(column, half) == name[:half], func.right(column, half) == name[-half:])
    return (column != name) & length & halves & column.like(any_(literal(_one_edit_patterns(name), ARRAY(Text))))


def _one_edit_patterns(name: str) -> list[str]:
    """Return LIKE patterns for names that are one edit away: the prefix and the suffix around each position."""
    return [f"{name[:place]}%{name[place + 2 :]}".replace("_", r"\_") for place in range(len(name))]
