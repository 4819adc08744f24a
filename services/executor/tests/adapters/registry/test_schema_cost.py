"""The cost of a schema counts every visit that a value can get."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.json.jsonio import dump
from services.executor.adapters.registry.json_schema import input_contract
from services.executor.adapters.registry.schema_cost import MOST, cost_of

NESTED: dict[str, Any] = {"type": "object"}
for _ in range(14):
    NESTED = {"allOf": [NESTED], "unevaluatedProperties": False}


def doubled(levels: int, leaf: dict[str, Any]) -> dict[str, Any]:
    """A schema in which every reference is followed twice."""
    defs = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(levels)}
    return {"$ref": "#/$defs/a0", "$defs": {**defs, f"a{levels}": leaf}}


@pytest.mark.parametrize(
    ("schema", "per_value"),
    [
        ({}, (0, 0)),
        (
            {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string", "minLength": 1}}},
            (2, 2, 0),
        ),
        ({"items": {"type": "integer"}, "contains": {"const": 1}}, (2, 2, 0)),
        ({"items": {"const": 1}, "additionalProperties": {"const": 1, "type": "integer"}}, (2, 2, 0)),
        ({"enum": ["a", "b"]}, (1, 0)),
        ({"required": ["a", "b"]}, (3, 0)),
    ],
)
def test_visits_are_counted_at_each_depth(schema: dict[str, Any], per_value: tuple[int, ...]) -> None:
    assert cost_of(schema).per_value == per_value


def test_references_count_as_often_as_they_are_followed() -> None:
    assert cost_of(doubled(10, {"type": "string"})).per_value[0] >= 2**10


def test_recursion_that_doubles_grows_with_the_depth_of_the_value() -> None:
    cost = cost_of({"allOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}}]})
    assert cost.per_value[10] >= 2**10
    assert cost.per_value[-1] == MOST


def test_recursion_through_either_arrays_or_objects_does_not_grow() -> None:
    anything = {"anyOf": [{"type": "string"}, {"items": {"$ref": "#"}}, {"additionalProperties": {"$ref": "#"}}]}
    assert max(cost_of(anything).per_value) < 10


@pytest.mark.parametrize("schema", [{"$ref": "#"}, {"$anchor": "a", "allOf": [{"$ref": "#a"}]}])
def test_a_schema_that_applies_itself_to_the_same_value_costs_the_most(schema: dict[str, Any]) -> None:
    assert cost_of(schema).per_value[0] == MOST


def test_what_is_unevaluated_is_looked_at_twice() -> None:
    assert cost_of(NESTED).per_value[0] >= 2**14


def test_an_object_in_an_enumeration_is_dearer_than_a_text() -> None:
    objects, texts = ({"enum": [option] * 100} for option in ({"a": 1}, "a"))
    assert cost_of(objects).per_value[0] > 100 * cost_of(texts).per_value[0]


def test_patterns_cost_for_each_byte() -> None:
    cost = cost_of({"items": {"pattern": "^a", "format": "email"}, "patternProperties": {"^b": {}}})
    assert cost.per_byte == (1, 2, 0)


def test_an_admitted_schema_refuses_an_array_that_would_take_seconds() -> None:
    options = [{"a": number} for number in range(1000)]
    rows = {"type": "array", "items": {"enum": options}}
    contract = input_contract(dump({"type": "object", "properties": {"rows": rows}}), ())
    assert contract.violations({"rows": [{"a": 999}] * 20}) == ()
    assert [each.rule for each in contract.violations({"rows": [{}] * 9000})] == ["validation_cost"]
