"""Finds inconsistent rows in the registry's database."""

from __future__ import annotations

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

QUERIES = {
    "a tool without a version": "select name from tools where name not in (select tool from tool_versions)",
    "a version without its tool": "select tool from tool_versions where tool not in (select name from tools)",
    "a tool that its own name does not lead to": (
        "select name from tools where name not in (select name from tool_names where tool = name)"
    ),
    "a tool in no namespace": "select name from tools where namespace not in (select namespace from namespaces)",
    "a version without a change": (
        "select v.tool from tool_versions v left join changes c on c.sequence = v.sequence and c.tool = v.tool"
        " and c.version = v.version where c.sequence is null"
    ),
    "a change without a version": (
        "select c.tool from changes c left join tool_versions v on v.tool = c.tool and v.version = c.version"
        " where v.tool is null"
    ),
    "a change past the counter": "select tool from changes where sequence > (select last from change_counter)",
    "a counter past the changes": (
        "select epoch from change_counter where last > coalesce((select max(sequence) from changes), 0)"
    ),
    "a gap between changes": (
        "select sequence from (select sequence, lag(sequence) over (order by sequence) as before from changes) s"
        " where before is not null and sequence <> before + 1"
    ),
    "a latest version that is none": (
        "select t.name from tools t left join tool_versions v on v.tool = t.name and v.version = t.latest_version"
        " where t.latest_version <> '' and v.tool is null"
    ),
}


async def find_inconsistencies(engine: AsyncEngine) -> dict[str, list[str]]:
    """Return inconsistent rows by kind; empty when the database is consistent."""
    found = {}
    async with engine.connect() as connection:
        for name, query in QUERIES.items():
            rows = [str(row[0]) for row in await connection.execute(text(query))]
            if rows:
                found[name] = rows
    return found
