"""Walks a JSON Schema alongside a payload: which subschemas apply to a value, its members and its elements. Pure.

The walk is generous: every alternative and condition counts as applicable, and every pattern as matching.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from libs.common.json.json_pointer import steps_of

Schemas = tuple[dict[str, Any], ...]

_LISTS = ("allOf", "anyOf", "oneOf")
_SINGLE = ("if", "then", "else", "not")
_REFERENCES = ("$ref", "$dynamicRef")
# No honest contract has more schemas for one value.
_MAX_SCHEMAS = 256


class SchemaWalk:
    """Finds the subschemas of one schema that apply to a value."""

    __slots__ = ("_fallback", "_schema")

    def __init__(self, schema: Any, fallback: dict[str, Any]) -> None:
        """`fallback` stands for a schema that cannot be followed: another document, or too many schemas."""
        self._schema, self._fallback = schema, fallback

    def root(self) -> Schemas:
        """Return the schemas of the whole payload."""
        return self.applicable([self._schema])

    def member(self, schemas: Schemas, key: str) -> Schemas:
        """Return the schemas of an object's member."""
        return self.applicable(member_schemas(schemas, key))

    def element(self, schemas: Schemas, index: int) -> Schemas:
        """Return the schemas of an array's element."""
        return self.applicable(element_schemas(schemas, index))

    def applicable(self, schemas: Sequence[Any]) -> Schemas:
        """Return these schemas and all that apply to the same value by reference or combination."""
        waiting, applicable = list(schemas), []
        while waiting:
            schema = waiting.pop()
            if not isinstance(schema, dict):
                continue
            applicable.append(schema)
            if len(applicable) > _MAX_SCHEMAS:
                return (self._fallback,)
            waiting.extend(self._in_place(schema))
        return tuple(applicable)

    def _in_place(self, schema: dict[str, Any]) -> Iterator[Any]:
        for keyword in _LISTS:
            yield from schema.get(keyword, ())
        yield from (schema[keyword] for keyword in _SINGLE if keyword in schema)
        yield from schema.get("dependentSchemas", {}).values()
        yield from (self._resolve(schema[keyword]) for keyword in _REFERENCES if keyword in schema)

    def _resolve(self, reference: str) -> Any:
        """Resolve `#` and `#/...`; no other form of reference is followed."""
        if reference != "#" and not reference.startswith("#/"):
            return self._fallback
        target: Any = self._schema
        for step in steps_of(reference[1:]):
            try:
                target = target[int(step)] if isinstance(target, list) else target[step]
            except (KeyError, IndexError, ValueError, TypeError):
                return self._fallback
        return target


def member_schemas(schemas: Schemas, key: str) -> list[Any]:
    """Return what schemas say directly about a member of this name."""
    found: list[Any] = []
    for schema in schemas:
        if key in schema.get("properties", {}):
            found.append(schema["properties"][key])
        # A pattern always counts as matching: deciding it would take another regular expression engine.
        found.extend(schema.get("patternProperties", {}).values())
        found.extend(schema[word] for word in ("additionalProperties", "unevaluatedProperties") if word in schema)
    return found


def element_schemas(schemas: Schemas, index: int) -> list[Any]:
    """Return what schemas say directly about an element."""
    found: list[Any] = []
    for schema in schemas:
        found.extend(schema.get("prefixItems", ())[index : index + 1])
        found.extend(schema[word] for word in ("items", "contains", "unevaluatedItems") if word in schema)
    return found


def has_keyword(schema: Any, keyword: str) -> bool:
    """Report whether a keyword occurs anywhere in a schema."""
    if isinstance(schema, dict):
        return keyword in schema or any(has_keyword(part, keyword) for part in schema.values())
    return isinstance(schema, list) and any(has_keyword(part, keyword) for part in schema)
