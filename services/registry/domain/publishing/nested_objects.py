"""Finds the objects inside of arguments that do not say which names they take, and closes them. Pure.

JSON Schema leaves objects open. A model that invents a name inside of an argument is refused only if the schema says
so, therefore the schemas of tools say it, or that any name is meant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from libs.common.json.json_pointer import pointer_of, steps_of
from libs.common.json.schema_guard import TOOL_LIMITS, schema_problems
from libs.common.json.schema_shape import Schema, SchemaShape

_SAYING = ("additionalProperties", "unevaluatedProperties")
_TOGETHER = ("allOf",)
_EITHER = ("anyOf", "oneOf")
_CONDITIONAL = ("then", "else")
_COMBINING = (*_TOGETHER, *_EITHER, *_CONDITIONAL, "if", "not", "$ref", "$dynamicRef", "dependentSchemas")
_LISTING = ("properties", "patternProperties")
# Where a subschema describes a part of the value, and where it describes the value itself.
_PART, _PARTS, _NAMED_PARTS = (
    ("items", "additionalProperties", "unevaluatedProperties", "unevaluatedItems"),
    ("prefixItems",),
    ("properties", "patternProperties"),
)
_NAMED_SAME = ("dependentSchemas", "$defs", "definitions")


def open_objects(schema: Any) -> Iterator[tuple[str, Schema]]:
    """Yield the pointer and the schema of each open object inside of the value that a bounded schema describes."""
    if isinstance(schema, dict):
        shape, known = SchemaShape(schema), dict[int, bool]()
        for pointer, part in _parts(schema, "", inside=False):
            if _is_object(part, shape, known) and not _says(part, shape, known, set()):
                yield pointer, part


def close_objects(schema: Any) -> Any:
    """Return the schema with every open object that lists its properties closed; those that list none take any. One
    that is too large for a tool stays as it is."""
    if not isinstance(schema, dict) or any(schema_problems(schema, TOOL_LIMITS)):
        return schema
    closed = schema
    for pointer, part in [*open_objects(schema)]:
        closed = _with(closed, steps_of(pointer), closing_keyword(part))
    return closed


def closing_keyword(part: Schema) -> dict[str, bool]:
    """Return the keyword that says what an open object takes: only what it lists, or any name if it lists none."""
    if any(keyword in part for keyword in _COMBINING):
        return {"unevaluatedProperties": False}
    return {"additionalProperties": not any(keyword in part for keyword in _LISTING)}


def _parts(schema: Any, pointer: str, *, inside: bool) -> Iterator[tuple[str, Schema]]:
    """Yield the subschemas that describe parts of the value, at every depth. `inside` is whether this one does."""
    if not isinstance(schema, dict):
        return
    if inside:
        yield pointer, schema
    for keywords, listed, below in (
        (_PART, False, True),
        (_PARTS, True, True),
        (_NAMED_PARTS, True, True),
        (_CONDITIONAL, False, False),
        ((*_TOGETHER, *_EITHER), True, False),
        (_NAMED_SAME, True, False),
    ):
        for keyword in keywords:
            for steps, child in _held(schema, keyword, listed=listed):
                yield from _parts(child, pointer + pointer_of(steps), inside=below)


def _held(schema: Schema, keyword: str, *, listed: bool) -> Iterator[tuple[tuple[str, ...], Any]]:
    value = schema.get(keyword)
    if not listed:
        yield (keyword,), value
    elif isinstance(value, dict):
        yield from (((keyword, name), child) for name, child in value.items())
    elif isinstance(value, list):
        yield from (((keyword, str(index)), child) for index, child in enumerate(value))


def _is_object(part: Any, shape: SchemaShape, known: dict[int, bool]) -> bool:
    """Return whether a subschema describes an object. Each is followed once: many may refer to the same long chain."""
    if id(part) not in known:
        known[id(part)] = _describes(part, shape, set())
    return known[id(part)]


def _describes(part: Any, shape: SchemaShape, seen: set[int]) -> bool:
    """Return whether a subschema, or one that applies to the same value, describes an object."""
    if not isinstance(part, Mapping) or id(part) in seen:
        return False
    seen.add(id(part))
    kinds = part.get("type")
    if isinstance(part.get("properties"), dict) or kinds == "object" or (isinstance(kinds, list) and "object" in kinds):
        return True
    return any(_describes(each, shape, seen) for each in (*_together(part, shape), *_alternatives(part)))


def _says(part: Any, shape: SchemaShape, known: dict[int, bool], seen: set[int]) -> bool:
    """Return whether a subschema says which other names an object takes, itself or in every alternative."""
    if not isinstance(part, Mapping) or id(part) in seen:
        return False
    seen.add(id(part))
    if any(keyword in part for keyword in _SAYING):
        return True
    if any(_says(each, shape, known, seen) for each in _together(part, shape)):
        return True
    either = [each for each in _alternatives(part) if _is_object(each, shape, known)]
    return bool(either) and all(_says(each, shape, known, set(seen)) for each in either)


def _together(part: Schema, shape: SchemaShape) -> Iterator[Any]:
    """Yield the subschemas that every value of the part meets, too."""
    for keyword in _TOGETHER:
        yield from _list(part.get(keyword))
    for keyword in ("$ref", "$dynamicRef"):
        if isinstance(part.get(keyword), str):
            yield shape.target(part[keyword])


def _alternatives(part: Schema) -> Iterator[Any]:
    for keyword in _EITHER:
        yield from _list(part.get(keyword))
    yield from (part[keyword] for keyword in _CONDITIONAL if keyword in part)


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _with(schema: Any, steps: Sequence[str], keywords: Mapping[str, Any]) -> Any:
    """Return a copy of a schema with keywords added at a place."""
    if not steps:
        return {**schema, **keywords}
    name, below = steps[0], steps[1:]
    if isinstance(schema, list):
        index = int(name)
        return [*schema[:index], _with(schema[index], below, keywords), *schema[index + 1 :]]
    return {**schema, name: _with(schema[name], below, keywords)}
