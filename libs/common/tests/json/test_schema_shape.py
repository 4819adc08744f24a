"""The structure of schemas."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.json.schema_shape import SchemaShape

TREE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "a": {"$ref": "#/$defs/leaf"},
        "list": {"type": "array", "items": {"properties": {"x/y": True}}},
        "pair": {"prefixItems": [{"properties": {"first": {}}}, False]},
        "never": False,
    },
    "anyOf": [{"properties": {"b": {"type": "string"}}}, {"$ref": "#other"}],
    "$defs": {
        "leaf": {"properties": {"deep": {}, "again": {"$ref": "#"}}},
        "tail": {"$anchor": "other", "properties": {"c": {}}},
        "with space": {"type": "null"},
    },
}


@pytest.mark.parametrize(
    ("pointer", "declared"),
    [
        ("/a", True),
        ("/a/deep", True),
        ("/a/again/a/deep", True),
        ("/b", True),
        ("/c", True),
        ("/list/0/x~1y", True),
        ("/list/*/x~1y", True),
        ("/pair/0/first", True),
        ("/pair/1", False),
        ("/pair/0/second", False),
        ("/never", False),
        ("/deep", False),
        ("/a/b", False),
    ],
)
def test_what_is_declared_is_found_through_references_and_combinations(pointer: str, declared: bool) -> None:
    assert SchemaShape(TREE).declares(pointer) is declared


def test_references_mean_subschemas_only() -> None:
    shape = SchemaShape(TREE)
    assert shape.target("#") is TREE
    assert shape.target("#/$defs/with%20space") == {"type": "null"}
    assert shape.target("#other") is TREE["$defs"]["tail"]
    assert shape.target("#/properties") is None
    assert shape.target("#/type") is None
    assert shape.target("tail") is None


def test_in_place_parts_are_each_seen_once_also_when_they_refer_to_themselves() -> None:
    schema = {"allOf": [{"$ref": "#"}, {"$ref": "#/allOf/0"}], "properties": {"elsewhere": {}}}
    assert len(list(SchemaShape(schema).in_place())) == 3


def test_the_work_of_an_evaluation_is_counted_with_references_followed() -> None:
    chain: dict[str, Any] = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(10)}
    schema = {"$ref": "#/$defs/a0", "$defs": {**chain, "a10": {}}}
    assert SchemaShape(schema).evaluations(10**9) > 2**10
    assert SchemaShape(schema).evaluations(500) == 500
    assert SchemaShape(TREE).evaluations(10**9) < 40


def test_a_deep_pointer_into_a_schema_that_refers_back_to_itself_is_followed_in_bounded_work() -> None:
    """Each step would otherwise multiply the subschemas to visit."""
    branches = [{"properties": {"a": {"$ref": "#"}}} for _ in range(50)]
    assert SchemaShape({"anyOf": branches}).declares("/a" * 64)


def test_a_chain_of_references_that_is_too_long_counts_as_endless() -> None:
    chain = {f"a{n}": {"$ref": f"#/$defs/a{n + 1}"} for n in range(5000)}
    assert SchemaShape({"$ref": "#/$defs/a0", "$defs": {**chain, "a5000": {}}}).evaluations(100) == 100


@pytest.mark.parametrize("value", [1, "x", [], None, {"a": 1}, [1, {"$ref": 5}]])
def test_what_is_no_schema_is_passed_over(value: Any) -> None:
    keywords = ("allOf", "properties", "items", "$ref", "$defs", "dependentSchemas", "$anchor")
    shape = SchemaShape(dict.fromkeys(keywords, value))
    assert list(shape.in_place())
    assert shape.evaluations(100) < 100
    assert not shape.declares("/z")
