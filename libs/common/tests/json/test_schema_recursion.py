"""How often a recursive schema visits the same part of a value."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.json.schema_recursion import visits_of_one_part
from libs.common.json.schema_shape import SchemaShape

LIMIT = 1000
SELF = {"$ref": "#"}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"properties": {"b": {}}}}},
        {"properties": {"left": SELF, "right": SELF}},
        {"properties": {"a": SELF}, "additionalProperties": SELF},
        {"prefixItems": [SELF, SELF], "items": SELF},
        {"additionalProperties": SELF, "items": SELF},
        {"oneOf": [{"properties": {name: {"items": SELF}}} for name in ("and", "or", "not")]},
        {"anyOf": [{"properties": {"child": SELF}, "required": ["child"]}, {"type": "integer"}]},
    ],
)
def test_recursion_into_different_parts_visits_each_once(schema: dict[str, Any]) -> None:
    assert visits_of_one_part(SchemaShape(schema), LIMIT) == 1


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"properties": {"a": SELF}}, {"properties": {"a": SELF}}]},
        {"properties": {"a": SELF}, "patternProperties": {"^a": SELF}},
        {"properties": {"a": SELF}, "unevaluatedProperties": SELF},
        {"items": SELF, "contains": SELF},
        {"properties": {"a": {"allOf": [SELF, SELF]}}},
        {"anyOf": [{"additionalProperties": SELF}, {"properties": {"a": SELF}}]},
        {"if": {"properties": {"a": SELF}}, "then": {"properties": {"a": SELF}}},
        {"properties": {"a": {"dependencies": {"x": SELF, "y": SELF}}}},
        {"$ref": "#/$defs/x", "$defs": {
            "x": {"properties": {"a": {"$ref": "#/$defs/y"}}},
            "y": {"oneOf": [{"properties": {"b": {"$ref": "#/$defs/x"}}, "title": str(n)} for n in range(2)]},
        }},
    ],
)  # fmt: skip
def test_recursion_into_one_part_in_two_branches_doubles_with_depth(schema: dict[str, Any]) -> None:
    assert visits_of_one_part(SchemaShape(schema), LIMIT) == LIMIT


def test_many_recursive_parts_are_counted() -> None:
    branches = [{"properties": {f"p{n}_{m}": {"$ref": "#"} for m in range(60)}} for n in range(60)]
    assert visits_of_one_part(SchemaShape({"anyOf": branches}), LIMIT) == 1


def test_counting_is_bounded() -> None:
    """Each of these parts has steps of its own beside those of all."""
    parts = {f"p{n}": {"$ref": "#", "properties": {f"q{n}": {"$ref": "#"}}} for n in range(400)}
    assert visits_of_one_part(SchemaShape({"properties": parts}), LIMIT) == LIMIT
