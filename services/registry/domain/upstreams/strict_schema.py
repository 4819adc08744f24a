"""Makes the schema of an upstream's tool strict where that is safe, and notes what changes. Pure.

A strict schema is JSON Schema 2020-12 that names every argument. Older dialects are read as 2020-12 if they use none of
the keywords whose meaning changed; a tool that uses one keeps its schema, and admission decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from libs.common.json.schema_guard import DIALECT, TOOL_LIMITS, schema_problems
from libs.common.json.schema_shape import SchemaShape
from services.registry.domain.publishing.nested_objects import close_objects

_OPEN: tuple[Any, ...] = (True, {})
_OPENERS = ("additionalProperties", "unevaluatedProperties")
# The keywords of draft 4 to 2019-09 that mean something else, or nothing, in 2020-12.
_CHANGED_KEYWORDS = ("dependencies", "additionalItems", "$recursiveRef", "$recursiveAnchor")


def make_strict(schema: Any, notes: list[str], subject: str, *, closed: bool = True) -> Any:
    """Return the strict form of a schema. `subject` names what it describes in notes; results stay open."""
    if not isinstance(schema, dict):
        return schema
    strict = _with_dialect(schema, notes)
    if not closed:
        return strict
    if "type" not in strict:
        strict = {**strict, "type": "object"}
    return _closed_inside(_closed(strict, notes, subject), notes, subject)


def _with_dialect(schema: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    dialect = schema.get("$schema", DIALECT)
    if dialect == DIALECT or any(_changed_keywords(schema)):
        return schema
    notes.append(f"the schema is read as JSON Schema 2020-12 instead of {str(dialect)[:80]}")
    return {**schema, "$schema": DIALECT}


def _changed_keywords(schema: dict[str, Any]) -> Iterator[str]:
    for part in SchemaShape(schema, TOOL_LIMITS.subschemas + 1).subschemas.values():
        yield from (keyword for keyword in _CHANGED_KEYWORDS if keyword in part)
        if isinstance(part.get("items"), list):
            yield "items"


def _closed(schema: dict[str, Any], notes: list[str], subject: str) -> dict[str, Any]:
    kept = {key: value for key, value in schema.items() if key not in _OPENERS or value not in _OPEN}
    if len(kept) < len(schema):
        notes.append(f"undeclared {subject} are refused, although the server takes them")
    return kept


def _closed_inside(schema: dict[str, Any], notes: list[str], subject: str) -> dict[str, Any]:
    """Close the objects inside of arguments, unless the schema is too large for it or becomes so."""
    closed: dict[str, Any] = close_objects(schema)
    if closed == schema or any(schema_problems(closed, TOOL_LIMITS)):
        return schema
    notes.append(f"undeclared names inside of {subject} are refused, although the server takes them")
    return closed
