"""Bounds of schemas from outside."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.json.schema_guard import TOKEN_LIMITS, TOOL_LIMITS, SchemaLimits, evaluation_cost, schema_problems


def doubling(levels: int, keyword: str = "allOf") -> dict[str, Any]:
    """A schema whose evaluations double with every level."""
    doubled = {f"a{n}": {keyword: [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(levels)}
    return {"$ref": "#/$defs/a0", "$defs": {**doubled, f"a{levels}": {"type": "object"}}}


def by_dependencies(levels: int) -> dict[str, Any]:
    doubled = {f"a{n}": {"dependencies": {name: {"$ref": f"#/$defs/a{n + 1}"} for name in "xy"}} for n in range(levels)}
    return {"$ref": "#/$defs/a0", "$defs": {**doubled, f"a{levels}": {}}}


def rules(schema: dict[str, Any], limits: SchemaLimits) -> set[str]:
    return {problem.rule for problem in schema_problems(schema, limits)}


@pytest.mark.parametrize("limits", [TOKEN_LIMITS, TOOL_LIMITS])
@pytest.mark.parametrize(
    ("schema", "rule"),
    [
        (doubling(40), "schema.size"),
        (doubling(40, "anyOf"), "schema.size"),
        (by_dependencies(40), "schema.size"),
        ({"allOf": [{}] * 5_001}, "schema.size"),
        ({"enum": [*range(100_001)]}, "schema.size"),
        ({"allOf": [{"$ref": "#"}]}, "schema.circular"),
        ({"pattern": "^(?=(a+)+$)b"}, "schema.pattern"),
        ({"patternProperties": {r"(a)\1": {}}}, "schema.pattern"),
        ({"pattern": "((a{500}){500}){500}"}, "schema.pattern"),
        ({"allOf": [{"pattern": r"\p{L}{90}"}] * 50}, "schema.pattern"),
        ({"anyOf": [{"properties": {"a": {"$ref": "#"}}}] * 2}, "schema.recursion"),
        ({"$ref": "#/hidden", "hidden": {"pattern": "(?=a)"}}, "schema.reference"),
        ({"$ref": "https://elsewhere.example/schema"}, "schema.reference"),
        ({"properties": {"a": {"$id": "https://elsewhere.example/"}}}, "schema.identity"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "schema.dialect"),
    ],
)
def test_a_schema_without_bounds_is_refused(schema: dict[str, Any], rule: str, limits: SchemaLimits) -> None:
    assert rules(schema, limits) == {rule}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        doubling(5),
        {"properties": {"path": {"pattern": "^/srv/[a-z0-9/_.-]{1,200}$"}, "n": {"enum": [*range(1000)]}}},
        {"properties": {"host": {"pattern": r"^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.){1,5}[a-z]{2,63}$"}}},
        {"properties": {"children": {"items": {"$ref": "#"}}}},
    ],
)
def test_an_ordinary_schema_is_accepted(schema: dict[str, Any]) -> None:
    assert not rules(schema, TOKEN_LIMITS)
    assert not rules(schema, TOOL_LIMITS)


@pytest.mark.parametrize(
    ("identity", "reference"),
    [
        ("https://example.com/order.json", "https://example.com/order.json#/$defs/line"),
        ("https://example.com/order.json#", "order.json#/$defs/line"),
        ("https://example.com/schemas/order", "/schemas/order#line"),
        ("urn:example:order", "urn:example:order#/$defs/line"),
    ],
)
def test_the_advice_for_a_reference_by_the_own_id_works(identity: str, reference: str) -> None:
    schema: dict[str, Any] = {"$id": identity, "$defs": {"line": {"$anchor": "line", "type": "string"}}}
    schema["properties"] = {"first": {"$ref": reference}}
    (problem,) = schema_problems(schema, TOOL_LIMITS)
    assert (problem.fragment, problem.rule) == ("#/properties/first", "schema.reference")
    schema["properties"] = {"first": {"$ref": problem.message.rpartition("write `")[2].rstrip("`")}}
    assert not rules(schema, TOOL_LIMITS)


@pytest.mark.parametrize("identity", [None, 7, "", "#", "http://[", "https://example.com/other.json"])
@pytest.mark.parametrize("reference", ["https://example.com/order.json#/$defs/line", "order.json", "http://["])
def test_other_references_outside_have_no_local_form(identity: Any, reference: str) -> None:
    schema = {"$id": identity, "$defs": {"line": {}}, "properties": {"first": {"$ref": reference}}}
    (problem,) = schema_problems(schema, TOOL_LIMITS)
    assert (problem.rule, "write `" in problem.message) == ("schema.reference", False)


def test_a_problem_names_its_place() -> None:
    (problem,) = schema_problems({"properties": {"a/b": {"pattern": "(?!x)"}}}, TOOL_LIMITS)
    assert problem.fragment == "#/properties/a~1b/pattern"


def test_listed_values_are_part_of_the_cost() -> None:
    assert evaluation_cost({"type": "object"}) == 1
    assert evaluation_cost({"enum": [1, [2, 3], {"a": {"b": 4}}], "required": ["a", "b"]}) == 10
