"""Containment proofs, keyword by keyword."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from services.registry.adapters.json_schemas import JsonSchemaChecker
from services.registry.domain.compatibility.negotiate_schema import _not_accepted, _not_returned
from services.registry.domain.compatibility.proof.budget import MAX_STEPS, Budget, OverBudgetError
from services.registry.domain.compatibility.proof.containment import ContainmentProver, containment_gaps
from services.registry.domain.compatibility.proof.schema_equality import SchemaEquality
from services.registry.domain.compatibility.proof.subschema import SchemaDocument, Subschema
from services.registry.domain.compatibility.schema_diff import SchemaDiff, removed_fields
from services.registry.domain.publishing.rules.schemas import schema_violations
from services.registry.tests.domain.compatibility.containment_oracle import shown_contained

STR, INT, NUM, OBJ = {"type": "string"}, {"type": "integer"}, {"type": "number"}, {"type": "object"}


def obj(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def shut(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "unevaluatedProperties": False}


def arr(**more: Any) -> dict[str, Any]:
    return {"type": "array", **more}


def kind(word: str, **more: Any) -> dict[str, Any]:
    return obj(("kind",), kind={"const": word}, **more)


TREE = {"$ref": "#/$defs/t", "$defs": {"t": obj(("v",), v=INT, next={"$ref": "#/$defs/t"})}}
WIDER_TREE = {"$ref": "#/$defs/t", "$defs": {"t": obj(("v",), v=NUM, next={"$ref": "#/$defs/t"})}}

# narrower, wider, whether the reverse is proven, too
WITHIN = [
    ({}, {}, True), ({"not": {}}, STR, False), (INT, NUM, False), (INT, {"type": ["integer", "string"]}, False),
    ({"type": ["string", "null"]}, {"anyOf": [STR, {"type": "null"}]}, True),
    ({"type": ["integer", "number"]}, NUM, True), ({"type": "number", "multipleOf": 1}, INT, True),
    # values
    ({"enum": [1, 2]}, {"enum": [2, 1, 3]}, False),
    ({"const": "a"}, STR, False),
    ({"enum": ["a", 1]}, {"type": ["string", "integer"]}, False),
    ({"type": "boolean"}, {"enum": [True, False]}, True),
    ({"type": "null"}, {"const": None}, True),
    ({"const": 1}, {"const": 1.0}, True),
    ({"type": "integer", "minimum": 1, "maximum": 3}, {"enum": [1, 2, 3]}, True),
    ({"enum": [1, "x"], "type": "string"}, {"const": "x"}, True),
    # numbers
    ({**NUM, "minimum": 2}, {**NUM, "minimum": 1}, False),
    ({**NUM, "exclusiveMinimum": 1}, {**NUM, "minimum": 1}, False),
    ({**INT, "exclusiveMinimum": 1}, {**INT, "minimum": 2}, True),
    ({**INT, "minimum": 1.5}, {**INT, "minimum": 2}, True),
    ({**NUM, "maximum": 1}, {**NUM, "exclusiveMaximum": 2}, False),
    ({**INT, "multipleOf": 6}, {**INT, "multipleOf": 3}, False),
    ({"multipleOf": 0.2}, {"multipleOf": 0.1}, False), ({**NUM, "minimum": 3, "maximum": 1}, {"not": {}}, True),
    # strings
    ({**STR, "minLength": 2, "maxLength": 3}, {**STR, "minLength": 1, "maxLength": 4}, False),
    ({**STR, "pattern": "^a"}, {"pattern": "^a"}, False),
    ({**STR, "format": "date"}, {"format": "date"}, False),
    (STR, {"pattern": ""}, False),
    ({**STR, "minLength": 3, "maxLength": 2}, {"not": {}}, True),
    # objects
    (obj(("a",), a=STR), obj(a=STR), False),
    (obj(("a",), a=INT), obj(("a",), a=NUM), False),
    (shut(obj(a=STR)), shut(obj(a=STR, b=STR)), False),
    ({**obj(a=STR), "additionalProperties": False}, shut(obj(a=STR)), True),
    (shut(obj(a=STR)), {**OBJ, "maxProperties": 1}, False),
    (obj(("a", "b")), {**OBJ, "minProperties": 2}, False),
    (shut(obj(a=STR, b=STR)), {**OBJ, "propertyNames": {"maxLength": 1}}, False),
    ({**OBJ, "propertyNames": {"enum": ["a"]}}, {**OBJ, "propertyNames": {"maxLength": 1}}, False),
    ({**OBJ, "patternProperties": {"^x": INT}}, {**OBJ, "patternProperties": {"^x": NUM}}, False),
    ({**OBJ, "additionalProperties": INT}, {**OBJ, "patternProperties": {"^x": NUM}}, False),
    ({**OBJ, "patternProperties": {"^x": INT}, "additionalProperties": False},
     {**OBJ, "additionalProperties": NUM}, False),
    (obj(("a", "b")), {**OBJ, "dependentRequired": {"a": ["b"]}}, False),
    (shut(obj(b=STR)), {**OBJ, "dependentRequired": {"a": ["c"]}}, False),
    ({**OBJ, "dependentRequired": {"a": ["b"]}, "required": ["a"]}, obj(("a", "b")), True),
    ({**obj(("a",)), "dependentSchemas": {"a": obj(("b",))}}, obj(("b",)), False),
    (obj(("b",)), {**OBJ, "dependentSchemas": {"a": obj(("b",))}}, False),
    (shut({**OBJ, "allOf": [obj(a=STR), obj(b=STR)]}), shut(obj(a=STR, b=STR, c=STR)), False),
    (shut({**OBJ, "anyOf": [obj(a=STR), obj(b=STR)]}), shut({**OBJ, "properties": {"a": {}, "b": {}}}), False),
    (obj(("a",), a={"not": {}}), {"not": {}}, True),
    # arrays
    (arr(items=INT), arr(items=NUM), False), (arr(prefixItems=[INT], items=False), arr(items=INT, maxItems=1), True),
    (arr(minItems=2, maxItems=3), arr(minItems=1, maxItems=4), False), (arr(maxItems=1), arr(uniqueItems=True), False),
    (arr(uniqueItems=True), arr(uniqueItems=True, minItems=0), True),
    (arr(prefixItems=[INT, STR]), arr(prefixItems=[NUM]), False),
    (arr(contains=INT), arr(contains=NUM), False), (arr(items=INT, minItems=1), arr(contains=INT), False),
    (arr(contains={"const": 1}, minContains=2), arr(minItems=2), False),
    (arr(contains=NUM, maxContains=1), arr(contains=INT, minContains=0, maxContains=1), False),
    (arr(items=INT), arr(unevaluatedItems=INT), True),
    # combinations
    ({"allOf": [STR, {"minLength": 2}]}, {**STR, "minLength": 1}, False),
    ({"anyOf": [STR, INT]}, {"type": ["string", "number"]}, False),
    ({"oneOf": [STR, INT]}, {"oneOf": [STR, INT, {"type": "null"}]}, False),
    ({"oneOf": [STR, INT]}, {"anyOf": [STR, INT]}, True),
    ({"oneOf": [kind("a"), kind("b")]}, {"oneOf": [kind("a"), kind("b"), kind("c")]}, False),
    ({"oneOf": [kind("a", x=INT), kind("b")]}, {"oneOf": [kind("a", x=NUM), kind("b")]}, False),
    ({**STR, "not": {"const": "x"}}, {"not": {"const": "x"}}, False),
    ({**STR, "minLength": 2}, {"not": {"const": "x"}}, False),
    (INT, {"not": STR}, False),
    ({"not": NUM}, {"not": INT}, False),
    ({"if": STR, "then": {"maxLength": 3}}, {"if": STR, "then": {"maxLength": 4}}, False),
    ({"if": STR, "then": {"maxLength": 3}, "else": INT}, {"type": ["string", "integer"]}, False),
    ({**STR, "maxLength": 3}, {"if": STR, "then": {"maxLength": 4}, "else": {"not": {}}}, False),
    # references
    (TREE, WIDER_TREE, False),
    ({"$ref": "#/$defs/a", "$defs": {"a": INT}}, NUM, False),
    (INT, {"$ref": "#/$defs/a", "$defs": {"a": NUM}}, False),
    ({"$ref": "#here", "$defs": {"a": {"$anchor": "here", **INT}}}, NUM, False),
    (TREE, {**TREE, "description": "the same"}, True),
    (obj(self={"$ref": "#"}), obj(self={"type": "object", "properties": {"self": OBJ}}), False),
]  # fmt: skip


# Each limit, its type, and the direction in which it narrows.
LIMITS = [
    ("integer", "minimum", 1),
    ("integer", "maximum", -1),
    ("integer", "exclusiveMinimum", 1),
    ("integer", "exclusiveMaximum", -1),
    ("number", "minimum", 1),
    ("number", "maximum", -1),
    ("number", "exclusiveMinimum", 1),
    ("number", "exclusiveMaximum", -1),
    ("string", "minLength", 1), ("string", "maxLength", -1), ("array", "minItems", 1), ("array", "maxItems", -1),
    ("object", "minProperties", 1), ("object", "maxProperties", -1),
]  # fmt: skip


@pytest.mark.parametrize(("type_", "keyword", "way"), LIMITS)
def test_a_limit_is_weighed_to_the_last_unit(type_: str, keyword: str, way: int) -> None:
    def at(limit: float) -> dict[str, Any]:
        return {"type": type_, keyword: limit}

    assert shown_contained(at(5), at(5))
    assert shown_contained(at(5 + way), at(5))
    assert not shown_contained(at(5), at(5 + way))
    assert not shown_contained({"type": type_}, at(5))


def test_exclusive_and_inclusive_bounds_are_distinguished() -> None:
    for low, high in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        assert shown_contained({**NUM, high: 5}, {**NUM, low: 5})
        assert not shown_contained({**NUM, low: 5}, {**NUM, high: 5})
        step = 1 if low == "minimum" else -1
        assert shown_contained({**INT, high: 5}, {**INT, low: 5 + step})
        assert shown_contained({**INT, low: 5 + step}, {**INT, high: 5})
        assert not shown_contained({**INT, low: 5}, {**INT, high: 5})
        assert not shown_contained({**NUM, high: 5}, {**NUM, low: 5 + step})


@pytest.mark.parametrize(("narrower", "wider", "both"), WITHIN)
def test_containment_is_shown_one_way_and_only_if_true_the_other(narrower: Any, wider: Any, both: bool) -> None:
    assert shown_contained(narrower, wider)
    assert shown_contained(wider, narrower) is both


@pytest.mark.parametrize(
    ("narrower", "wider"),
    [
        ({"pattern": "^ab"}, {"pattern": "^a"}),
        ({"format": "email"}, {"format": "idn-email"}),
        ({"$dynamicRef": "#n", "$defs": {"n": {"$dynamicAnchor": "n", **INT}}}, INT),
        (INT, {"$dynamicRef": "#n", "$defs": {"n": {"$dynamicAnchor": "n", **NUM}}}),
        ({"type": "object", "required": ["a", "b"]}, {"dependencies": {"a": ["b"]}}),
    ],
)
def test_true_but_unprovable_containment_is_not_proven(narrower: Any, wider: Any) -> None:
    assert not shown_contained(narrower, wider)


@pytest.mark.parametrize(
    "narrower",
    [
        shut({**OBJ, "anyOf": [obj(a=STR), obj(b=STR)]}),
        shut({**OBJ, "allOf": [obj(a=STR), obj(b=STR)]}),
        shut({**OBJ, "if": obj(a=STR), "then": obj(b=STR)}),
        shut({**obj(a=STR), "dependentSchemas": {"a": obj(b=STR)}}),
        shut({**OBJ, "$ref": "#/$defs/d", "$defs": {"d": obj(a=STR, b=STR)}}),
        shut({**OBJ, "allOf": [{"patternProperties": {"^[ab]$": STR}}]}),
        shut({**OBJ, "allOf": [{"additionalProperties": STR}]}),
        {**OBJ, "patternProperties": {"^b": {}}, "additionalProperties": False},
    ],
)
def test_what_a_closed_schema_lets_in_from_elsewhere_is_let_in(narrower: Any) -> None:
    assert not shown_contained(narrower, shut(obj(a=STR)))


@pytest.mark.parametrize(
    ("narrower", "wider"),
    [
        ({"oneOf": [kind("a"), kind("b")]}, {"oneOf": [kind("a"), kind("b"), obj(("kind",))]}),
        ({"type": ["string", "integer"]}, {"oneOf": [STR, INT, {"minimum": 3}]}),
        (STR, {"not": {"maxLength": 3}}),
        ({"type": ["string", "null"]}, {"if": STR, "then": {}, "else": {"not": {}}}),
        (arr(prefixItems=[INT]), arr(items=INT)),
        (arr(items=NUM), arr(contains=INT)),
        (arr(), arr(prefixItems=[INT])),
        (
            {**OBJ, "patternProperties": {"^x": STR}, "additionalProperties": INT},
            {**OBJ, "patternProperties": {"1$": INT}},
        ),
        ({"enum": [{"a": 1}]}, shut(obj(b=INT))),
    ],
)
def test_false_containment_is_not_proven(narrower: Any, wider: Any) -> None:
    assert not shown_contained(narrower, wider)


def two_that_refer_to_each_other(*required: str) -> Subschema:
    a = {"type": "object", "properties": {"x": {"$ref": "#/$defs/b"}}, "required": list(required)}
    b = {"type": "object", "properties": {"y": {"$ref": "#/$defs/a"}}}
    found = SchemaDocument({"$defs": {"a": a, "b": b}}).target("#/$defs/a")
    assert found is not None
    return found


def test_results_that_depend_on_a_failed_claim_are_not_cached() -> None:
    """While `a` is being proven, its property `x` seems proven, because `x` depends on `a`. Then `a` fails."""
    old, new = two_that_refer_to_each_other("x"), two_that_refer_to_each_other("x", "z")
    x, wider_x = old.child("properties", "x"), new.child("properties", "x")
    b, wider_b = x.ref_target(), wider_x.ref_target()
    assert b is not None
    assert wider_b is not None
    proof = ContainmentProver(JsonSchemaChecker(), Budget())
    assert proof.gaps((b.child("properties", "y"),), wider_b.child("properties", "y"))
    assert proof.gaps((x,), wider_x)
    equality = SchemaEquality(Budget())
    assert not equality.equal(old, new)
    assert not equality.equal(x, wider_x)


@pytest.mark.parametrize(
    "wider",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"not": {"$ref": "#"}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    ],
)
def test_a_schema_that_only_refers_to_itself_proves_nothing(wider: Any) -> None:
    assert not shown_contained(STR, wider)


def test_a_claim_is_never_assumed_for_the_same_value() -> None:
    """Circular schemas are refused before a proof; the prover does not accept them either."""
    goal = SchemaDocument({"anyOf": [{"$ref": "#"}]}).root_subschema
    assert ContainmentProver(JsonSchemaChecker(), Budget()).gaps((SchemaDocument(STR).root_subschema,), goal)


def test_the_gap_says_where_and_which() -> None:
    old = shut(obj(("a",), a=STR, deep=obj(x={**STR, "maxLength": 9})))
    new = shut(obj(("a", "b"), a=INT, b=STR, deep=obj(x={**STR, "maxLength": 5})))
    gaps = containment_gaps(JsonSchemaChecker(), Budget(), old, new)
    found = {(gap.pointer, gap.keyword, gap.name) for gap in gaps}
    assert found == {
        ("", "required", "b"),
        ("/properties/a", "type", ""),
        ("/properties/deep/properties/x", "maxLength", ""),
    }


def chain(end: Any, length: int = 95) -> Any:
    """A schema with deep references, within the admission limits."""
    parts = {f"a{n}": obj(x={"$ref": f"#/$defs/a{n + 1}"}) for n in range(length)}
    return {"$ref": "#/$defs/a0", "$defs": {**parts, f"a{length}": end}}


def test_references_may_lead_deeper_than_the_stack_goes() -> None:
    assert list(schema_violations("", chain(STR), JsonSchemaChecker())) == []
    assert shown_contained(chain(STR), chain(STR))
    assert not shown_contained(chain(STR), chain(INT))


class Watched(dict[str, Any]):
    """Properties that count how often they are iterated."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.read = 0

    def items(self) -> Any:
        self.read += 1
        return super().items()


def test_fields_of_a_schema_that_refers_to_itself_are_compared_in_bounded_work() -> None:
    properties = Watched({f"p{n}": {"$ref": "#"} for n in range(1_900)})
    tree = {"type": "object", "properties": properties}
    removed = [difference.path for difference in removed_fields("", tree, obj(**{**properties, "p7": False}))]
    assert removed[0] == "#/p7"
    assert properties.read < 200


@pytest.mark.parametrize("compared", [_not_accepted, _not_returned])
def test_many_expectations_of_a_large_schema_are_compared_in_bounded_work(compared: Any) -> None:
    offered = Watched({f"p{n}": STR for n in range(1_000)})
    expected = obj(**{f"q{n}": STR for n in range(1_000)})  # type: ignore[arg-type]
    missing = list(compared(SchemaDiff(JsonSchemaChecker()), expected, shut({"type": "object", "properties": offered})))
    assert len(missing) >= 1_000
    assert offered.read < 500


def many_choices() -> tuple[Any, Any]:
    def level(n: int) -> Any:
        return {"oneOf": [obj((f"p{i}",), **{f"p{i}": {"type": "string", "minLength": n}}) for i in range(12)]}

    return {"allOf": [level(i) for i in range(12)]}, {"allOf": [level(i + 1) for i in range(12)]}


def doubling() -> tuple[Any, Any]:
    definitions: dict[str, Any] = {
        f"a{n}": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}, {"items": {"$ref": f"#/$defs/a{n + 1}"}}]} for n in range(40)
    }
    old = {"$ref": "#/$defs/a0", "$defs": {**definitions, "a40": INT}}
    return old, {"$ref": "#/$defs/a0", "$defs": {**definitions, "a40": STR}}


def wide() -> tuple[Any, Any]:
    return obj(**{f"p{n}": {"minLength": n} for n in range(5000)}), obj(  # type: ignore[arg-type]
        **{f"p{n}": {"minLength": n + 1} for n in range(5000)}  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("make", [many_choices, doubling, wide])
def test_hostile_schemas_end_within_the_budget_as_not_shown(make: Any) -> None:
    old, new = make()
    assert not shown_contained(old, new)
    budget = Budget()
    with suppress(OverBudgetError):
        containment_gaps(JsonSchemaChecker(), budget, old, new)
    # One step may cost a few units at once.
    assert budget.left > -MAX_STEPS // 2
