"""Coercion by schema: exact, unambiguous, and with every change reported."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from libs.common.json.canonical import canonical
from libs.common.json.json_pointer import places, steps_of
from libs.common.json.jsonio import dump
from services.executor.adapters.registry.compile_coercion import Coercer, Edit, apply_edits
from services.executor.adapters.registry.json_schema import MANY_PARTS
from services.executor.domain.argument_spec import Change
from services.executor.tests.generated import keeping

SHAPE: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "amount": {"type": "number"},
        "node": {
            "type": "object",
            "properties": {
                "n": {"type": "integer"},
                "next": {"$ref": "#/$defs/node"},
            },
        },
        "either": {
            "anyOf": [
                {
                    "type": "object",
                    "properties": {"kind": {"const": "count"}, "v": {"type": "integer"}},
                    "required": ["kind", "v"],
                },
                {
                    "type": "object",
                    "properties": {
                        "kind": {"const": "flags"},
                        "v": {"type": "array", "items": {"oneOf": [{"type": "boolean"}, {"$ref": "#/$defs/either"}]}},
                    },
                    "required": ["kind", "v"],
                },
            ]
        },
    },
    "properties": {
        "n": {"type": "integer", "minimum": 0},
        "b": {"type": "boolean"},
        "x": {"$ref": "#/$defs/amount"},
        "list": {"type": "array", "items": {"$ref": "#/$defs/amount"}},
        "pair": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "boolean"}]},
        "node": {"$ref": "#/$defs/node"},
        "either": {"$ref": "#/$defs/either"},
        "maybe": {"type": ["integer", "null"]},
        "loose": {"type": ["integer", "string"]},
        "a/b~c": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]},
        "one": {"oneOf": [{"type": "integer"}, {"type": "number"}]},
        "unclear": {"anyOf": [{"type": "object", "minProperties": 1}, {"type": "array", "minItems": 1}]},
        "type": {"type": "integer"},
        "free": {},
        "fixed": {"const": {"type": "integer"}},
    },
    "allOf": [
        {
            "if": {"properties": {"b": {"const": True}}, "required": ["b"]},
            "then": {"properties": {"free": {"type": "integer"}}},
        }
    ],
}
SHAPED = Coercer(dump(SHAPE)).coerce


@pytest.mark.parametrize(
    ("arguments", "read", "paths"),
    [
        ({"n": "42"}, {"n": 42}, ["/n"]),
        ({"n": 42.0}, {"n": 42}, ["/n"]),
        ({"type": "1"}, {"type": 1}, ["/type"]),
        ({"type": 1.0}, {"type": 1}, ["/type"]),
        ({"b": "true", "x": "0.5"}, {"b": True, "x": 0.5}, ["/b", "/x"]),
        ({"x": 42.0}, {"x": 42.0}, []),
        ({"list": ["1", 2, "x"]}, {"list": [1, 2, "x"]}, ["/list/0"]),
        ({"list": "[1, 2]"}, {"list": [1, 2]}, ["/list"]),
        ({"list": '["1"]'}, {"list": [1]}, ["/list", "/list/0"]),
        ({"list": "1"}, {"list": "1"}, []),
        ({"pair": ["1", "false"]}, {"pair": [1, False]}, ["/pair/0", "/pair/1"]),
        ({"node": {"next": {"next": {"n": "7"}}}}, {"node": {"next": {"next": {"n": 7}}}}, ["/node/next/next/n"]),
        ({"either": {"kind": "count", "v": "7"}}, {"either": {"kind": "count", "v": 7}}, ["/either/v"]),
        ({"either": {"kind": "count", "v": 7.0}}, {"either": {"kind": "count", "v": 7}}, ["/either/v"]),
        (
            {"either": {"kind": "flags", "v": ["true", {"kind": "count", "v": "7"}]}},
            {"either": {"kind": "flags", "v": [True, {"kind": "count", "v": 7}]}},
            ["/either/v/0", "/either/v/1/v"],
        ),
        ({"maybe": "7"}, {"maybe": 7}, ["/maybe"]),
        ({"maybe": "null"}, {"maybe": "null"}, []),
        ({"loose": "7"}, {"loose": "7"}, []),
        ({"a/b~c": "7"}, {"a/b~c": 7}, ["/a~1b~0c"]),
        ({"a/b~c": "true"}, {"a/b~c": True}, ["/a~1b~0c"]),
        # An integer would satisfy both, and then neither does.
        ({"one": "7"}, {"one": "7"}, []),
        ({"one": "7.5"}, {"one": 7.5}, ["/one"]),
        ({"unclear": '{"a":1}'}, {"unclear": {"a": 1}}, ["/unclear"]),
        ({"unclear": "[]"}, {"unclear": "[]"}, []),
        ({"b": True, "free": "7"}, {"b": True, "free": 7}, ["/free"]),
        ({"free": "7"}, {"free": "7"}, []),
        ({"n": "x", "b": "maybe"}, {"n": "x", "b": "maybe"}, []),
        ({"fixed": {"type": "integer"}}, {"fixed": {"type": "integer"}}, []),
        ({"undeclared": "7"}, {"undeclared": "7"}, []),
    ],
)
def test_a_value_is_coerced_to_its_declared_type(arguments: Any, read: Any, paths: list[str]) -> None:
    before = canonical(arguments)
    coerced = SHAPED(arguments)
    assert canonical(coerced.value) == canonical(read)
    assert [type(candidate) for path in paths for _, candidate in places(coerced.value, steps_of(path))] == [
        type(candidate) for path in paths for _, candidate in places(read, steps_of(path))
    ]
    assert [change.path for change in coerced.changes] == paths
    assert all(change.source == "coercion" and change.reason for change in coerced.changes)
    assert coerced.losses == ()
    # What was given is left alone.
    assert canonical(arguments) == before


def test_a_change_names_both_types() -> None:
    assert SHAPED({"n": "42"}).changes == (Change("/n", "coercion", "string to integer"),)
    assert SHAPED({"n": 42.0}).changes == (Change("/n", "coercion", "number to integer"),)


@pytest.mark.parametrize(
    ("arguments", "paths"),
    [
        ({"n": "42.5"}, ["/n"]),
        ({"n": "1e400", "list": ["1", "0x10"], "b": "true"}, ["/n", "/list/1"]),
        ({"either": {"kind": "count", "v": "12345678901234567890123"}}, ["/either/v"]),
        ({"a/b~c": "7.5"}, ["/a~1b~0c"]),
        ({"list": "[12345678901234567890123]"}, ["/list"]),
    ],
)
def test_every_lossy_conversion_is_reported(arguments: Any, paths: list[str]) -> None:
    coerced = SHAPED(arguments)
    assert sorted(loss.path for loss in coerced.losses) == sorted(paths)
    assert {loss.rule for loss in coerced.losses} == {"coercion"}


def test_an_ambiguous_value_is_not_coerced() -> None:
    schema = {
        "properties": {
            "v": {
                "anyOf": [
                    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
                    {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]},
                ]
            }
        }
    }
    both = {"v": {"a": "1", "b": "2"}}
    assert Coercer(dump(schema)).coerce(both).changes == ()
    assert Coercer(dump(schema)).coerce({"v": {"a": "1"}}).value == {"v": {"a": 1}}


def test_the_number_of_passes_is_bounded() -> None:
    """As many ways as the registry admits: a look for each of them, and for each of those again, would take minutes."""
    schema: dict[str, Any] = {"type": "integer"}
    value: Any = "x"
    for _ in range(3):
        branch = {"type": "object", "properties": {"a": schema, "b": {"type": "integer"}}, "required": ["a"]}
        schema, value = {"anyOf": [branch] * 8}, {"a": value, "b": "1"}
    coercer = Coercer(dump({"properties": {"v": schema}}))
    passes = 0
    compiled = coercer._compile

    def counting(part: dict[str, Any]) -> Any:
        validator = compiled(part)

        class Counted:
            def iter_errors(self, candidate: Any) -> Any:
                nonlocal passes
                passes += 1
                return validator.iter_errors(candidate)

            def is_valid(self, candidate: Any) -> bool:
                return bool(validator.is_valid(candidate))

        return Counted()

    coercer._compile = counting  # type: ignore[assignment, method-assign]
    assert coercer.coerce({"v": value}).changes == ()
    assert passes <= 100


def test_too_many_changes_are_not_applied() -> None:
    assert len(SHAPED({"list": ["1"] * 900}).changes) == 900
    assert SHAPED({"list": ["1"] * 1100}).changes == ()


def test_edits_copy_only_the_containers_on_their_paths() -> None:
    value = {"a": [{"b": 1}, {"b": 2}], "c": {"d": 3}}
    edited = apply_edits(value, [Edit(("a", 0, "b"), 9, ""), Edit(("e",), 8, "")])
    assert edited == {"a": [{"b": 9}, {"b": 2}], "c": {"d": 3}, "e": 8}
    assert value == {"a": [{"b": 1}, {"b": 2}], "c": {"d": 3}}
    assert edited["c"] is value["c"]
    assert edited["a"][1] is value["a"][1]  # type: ignore[index]


VALIDATOR = jsonschema_rs.Draft202012Validator(SHAPE)
# Without what refers to itself, which the generator cannot follow.
GENERATED = {
    "type": "object",
    "properties": {
        name: part if "$ref" not in part else {"type": "number"}
        for name, part in SHAPE["properties"].items()
        if name not in ("node", "either", "list", "unclear")
    },
}


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(keeping(GENERATED))
def test_valid_values_are_unchanged_except_integral_floats(arguments: Any) -> None:
    if not VALIDATOR.is_valid(arguments):
        return
    coerced = SHAPED(arguments)
    assert canonical(coerced.value) == canonical(arguments)
    assert all(change.reason == "number to integer" for change in coerced.changes)


SCALARS = st.one_of(
    st.integers(-(2**40), 2**40).map(str),
    st.booleans().map(lambda b: str(b).lower()),
    st.text(max_size=5),
    st.floats(-9, 9),
)
MESSY = st.dictionaries(
    st.sampled_from(sorted(SHAPE["properties"])),
    st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["n", "next", "kind", "v"]), inner),
    ),
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(MESSY)
def test_coercion_is_idempotent(arguments: dict[str, Any]) -> None:
    once = SHAPED(arguments)
    if once.losses:
        return
    again = SHAPED(once.value)
    assert again.changes == ()
    assert canonical(again.value) == canonical(once.value)


def test_a_very_large_value_is_not_coerced() -> None:
    read = Coercer(
        dump({"type": "object", "properties": {"list": {"type": "array", "items": {"type": "integer"}}}})
    ).coerce
    few, many = {"list": ["1"] + [1] * 1000}, {"list": ["1"] + [1] * MANY_PARTS}
    assert [change.path for change in read(few).changes] == ["/list/0"]
    assert (read(many).value, read(many).changes) == (many, ())
    within = read({"list": dump(many["list"]).decode()})
    assert (within.value, [change.path for change in within.changes]) == (many, ["/list"])
