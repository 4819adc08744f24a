"""Which subschemas apply to a value, its members and its elements."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.json.schema_walk import SchemaWalk, has_keyword

LOST = {"lost": True}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"properties": {"a": {"n": 1}, "b": {"n": 2}}}, [1]),
        ({"additionalProperties": {"n": 1}, "patternProperties": {"^z": {"n": 2}}}, [1, 2]),
        ({"allOf": [{"properties": {"a": {"n": 1}}}], "then": {"properties": {"a": {"n": 2}}}}, [1, 2]),
        ({"dependentSchemas": {"x": {"properties": {"a": {"n": 1}}}}}, [1]),
        ({"$ref": "#/$defs/x~1y", "$defs": {"x/y": {"properties": {"a": {"n": 1}}}}}, [1]),
        ({"properties": {"a": True}}, []),
    ],
)
def test_the_schemas_of_a_member(schema: Any, expected: list[int]) -> None:
    walk = SchemaWalk(schema, LOST)
    assert sorted(schema["n"] for schema in walk.member(walk.root(), "a")) == expected


def test_the_schemas_of_an_element() -> None:
    walk = SchemaWalk({"prefixItems": [{"n": 1}, {"n": 2}], "items": {"n": 3}}, LOST)
    assert sorted(schema["n"] for schema in walk.element(walk.root(), 1)) == [2, 3]
    assert [schema["n"] for schema in walk.element(walk.root(), 5)] == [3]


@pytest.mark.parametrize("reference", ["#anchor", "other.json", "#/$defs/missing", "#/allOf/x"])
def test_a_reference_that_cannot_be_followed_yields_the_fallback(reference: str) -> None:
    assert LOST in SchemaWalk({"$ref": reference, "allOf": [{}]}, LOST).root()


def test_a_schema_that_refers_to_itself_without_end_yields_the_fallback() -> None:
    assert SchemaWalk({"allOf": [{"$ref": "#"}]}, LOST).root() == (LOST,)


def test_a_keyword_is_found_at_any_depth() -> None:
    assert has_keyword({"anyOf": [{"items": {"mark": 1}}]}, "mark")
    assert not has_keyword({"anyOf": [{"items": {"mark": 1}}]}, "other")
