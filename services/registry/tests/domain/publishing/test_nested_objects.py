"""Objects inside of arguments: which of them are open, and that closing them keeps what they list."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.json.schema_guard import TOOL_LIMITS, schema_problems
from services.registry.adapters.json_schemas import JsonSchemaChecker
from services.registry.domain.publishing.nested_objects import close_objects, open_objects

CHECKER = JsonSchemaChecker()
TEXT = {"type": "string"}
A = {"type": "object", "properties": {"a": TEXT}}
B = {"type": "object", "properties": {"b": TEXT}}
CLOSED = {**A, "additionalProperties": False}


def argument(schema: Any, **definitions: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": schema}, **({"$defs": definitions} if definitions else {})}


def pointers(schema: Any) -> list[str]:
    return [pointer for pointer, _ in open_objects(schema)]


@pytest.mark.parametrize(
    "schema",
    [
        A,
        {"properties": {"a": TEXT}},
        {"type": ["object", "null"], "properties": {"a": TEXT}},
        {"anyOf": [A, {"type": "null"}]},
        {"anyOf": [CLOSED, B]},
        {"allOf": [A, B]},
        {"if": {"required": ["a"]}, "then": A, "type": "object"},
        {**A, "patternProperties": {"^x-": TEXT}},
    ],
)
def test_an_open_object_is_found_and_closed_and_keeps_what_it_lists(schema: Any) -> None:
    whole = argument(schema)
    assert pointers(whole) == ["/properties/x"]
    closed = close_objects(whole)
    assert pointers(closed) == []
    assert not [*schema_problems(closed, TOOL_LIMITS)]
    for document, closed_admits in (({"a": "t"}, True), ({"a": "t", "zzz": 1}, False)):
        assert not CHECKER.value_findings(whole, {"x": document})
        assert (not CHECKER.value_findings(closed, {"x": document})) is closed_admits


@pytest.mark.parametrize(
    "schema",
    [
        CLOSED,
        TEXT,
        {},
        True,
        {**A, "additionalProperties": True},
        {**A, "additionalProperties": TEXT},
        {"type": "object", "additionalProperties": {}},
        {"allOf": [A, B], "unevaluatedProperties": False},
        {"anyOf": [CLOSED, {"type": "null"}]},
        {"not": A},
        {"allOf": [CLOSED, {"required": ["a"]}]},
    ],
)
def test_an_object_that_says_what_it_takes_stays_as_it_is(schema: Any) -> None:
    whole = argument(schema)
    assert pointers(whole) == []
    assert close_objects(whole) == whole


def test_objects_are_found_at_every_depth_and_the_arguments_themselves_are_none() -> None:
    deep = argument({"type": "array", "items": argument({"prefixItems": [A, {"additionalProperties": B}]})})
    items = "/properties/x/items"
    assert pointers(deep) == [
        items,
        f"{items}/properties/x/prefixItems/0",
        f"{items}/properties/x/prefixItems/1/additionalProperties",
    ]
    assert pointers(close_objects(deep)) == []
    assert pointers(argument({"type": "object", "properties": {"a/b": A}})) == [
        "/properties/x",
        "/properties/x/properties/a~1b",
    ]
    assert pointers(A) == []


def test_a_definition_is_judged_where_it_is_used() -> None:
    reference = {"$ref": "#/$defs/part"}
    assert pointers(argument(reference, part=CLOSED)) == []
    assert pointers(argument(reference, part=A)) == ["/properties/x"]
    shared = argument({"allOf": [reference, B]}, part=A)
    closed = close_objects(shared)
    assert closed["$defs"] == {"part": A}
    assert not CHECKER.value_findings(closed, {"x": {"a": "t", "b": "t"}})
    assert CHECKER.value_findings(closed, {"x": {"a": "t", "c": "t"}})
    tree = {"type": "object", "properties": {"next": {"$ref": "#/$defs/tree"}}}
    closed = close_objects(argument({"$ref": "#/$defs/tree"}, tree=tree))
    assert pointers(closed) == []
    assert not CHECKER.value_findings(closed, {"x": {"next": {"next": {}}}})
    assert CHECKER.value_findings(closed, {"x": {"next": {"other": {}}}})


def test_an_object_that_lists_nothing_takes_any_name() -> None:
    closed = close_objects(argument({"type": "object"}))
    assert closed["properties"]["x"]["additionalProperties"] is True


@pytest.mark.parametrize("schema", [None, True, [], {"allOf": 3, "properties": [1], "items": "x", "type": 7}, "text"])
def test_what_is_no_schema_has_no_open_objects(schema: Any) -> None:
    assert pointers(schema) == []
    assert pointers(argument(schema)) == []
