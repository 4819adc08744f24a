"""Makes arguments from an input schema: hypothesis-jsonschema makes the plain values, this module objects and arrays.

hypothesis-jsonschema makes objects with internals of Hypothesis that newer versions do not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st
from hypothesis_jsonschema import from_schema

_DEFINITIONS = "#/$defs/"
_MORE_ITEMS = 8
_Values = st.SearchStrategy[Any]


def arguments_of(schema: Mapping[str, Any]) -> _Values:
    """Return a strategy for what a schema accepts. Some of it may break a keyword that spans several values."""
    return _values(schema, schema.get("$defs", {}))


def _values(schema: Any, definitions: Mapping[str, Any]) -> _Values:
    if not isinstance(schema, Mapping):
        return from_schema(schema)
    if (reference := str(schema.get("$ref", ""))).startswith(_DEFINITIONS):
        return st.deferred(lambda: _values(definitions[reference.removeprefix(_DEFINITIONS)], definitions))
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    for alternatives in ("anyOf", "oneOf"):
        if alternatives in schema:
            return st.one_of([_values(part, definitions) for part in schema[alternatives]])
    kind = schema.get("type")
    if isinstance(kind, list):
        return st.one_of([_values({**schema, "type": each}, definitions) for each in kind])
    if kind == "object":
        return _objects(schema, definitions)
    return _arrays(schema, definitions) if kind == "array" else from_schema({**schema})


def _objects(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> _Values:
    properties, required = schema.get("properties", {}), set(schema.get("required", ()))
    members = {name: _values(part, definitions) for name, part in properties.items()}
    further = schema.get("additionalProperties", True)
    if not members and isinstance(further, Mapping):
        least = schema.get("minProperties", 0)
        most = min(schema.get("maxProperties", least + _MORE_ITEMS), least + _MORE_ITEMS)
        return st.dictionaries(st.text(), _values(further, definitions), min_size=least, max_size=most)
    return st.fixed_dictionaries(
        {name: each for name, each in members.items() if name in required},
        optional={name: each for name, each in members.items() if name not in required},
    )


def _arrays(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> _Values:
    least = schema.get("minItems", 0)
    most = min(schema.get("maxItems", least + _MORE_ITEMS), least + _MORE_ITEMS)
    items = _values(schema.get("items", True), definitions)
    return st.lists(items, min_size=least, max_size=most, unique_by=repr if schema.get("uniqueItems") else None)
