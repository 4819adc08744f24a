"""Coercion by schema: led by what is wrong, one reading or none, and every change named."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from libs.common.json.canonical import canonical
from libs.common.json.json_pointer import places, steps_of
from libs.common.json.jsonio import dump
from services.executor.adapters.registry.compile_coercion import Coercer, Edit, applied
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
SHAPED = Coercer(dump(SHAPE))


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
def test_a_value_becomes_what_its_place_declares(arguments: Any, read: Any, paths: list[str]) -> None:
    before = canonical(arguments)
    coerced = SHAPED(arguments)
    assert canonical(coerced.value) == canonical(read)
    assert [type(found) for path in paths for _, found in places(coerced.value, steps_of(path))] == [
        type(found) for path in paths for _, found in places(read, steps_of(path))
    ]
    assert [change.path for change in coerced.changes] == paths
    assert all(change.source == "coercion" and change.reason for change in coerced.changes)
    assert coerced.losses == ()
    # What was given is left alone.
    assert canonical(arguments) == before


def test_a_change_says_what_became_what() -> None:
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
def test_every_place_where_something_would_be_lost_is_named(arguments: Any, paths: list[str]) -> None:
    coerced = SHAPED(arguments)
    assert sorted(loss.path for loss in coerced.losses) == sorted(paths)
    assert {loss.rule for loss in coerced.losses} == {"coercion"}


def test_two_readings_are_none() -> None:
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
    assert Coercer(dump(schema))(both).changes == ()
    assert Coercer(dump(schema))({"v": {"a": "1"}}).value == {"v": {"a": 1}}


def test_the_work_is_bounded_however_the_schema_branches() -> None:
    """As many ways as the registry admits: a look for each of them, and for each of those again, would take minutes."""
    schema: dict[str, Any] = {"type": "integer"}
    value: Any = "x"
    for _ in range(3):
        branch = {"type": "object", "properties": {"a": schema, "b": {"type": "integer"}}, "required": ["a"]}
        schema, value = {"anyOf": [branch] * 8}, {"a": value, "b": "1"}
    coercer = Coercer(dump({"properties": {"v": schema}}))
    looks = 0
    compiled = coercer._compiled

    def counting(part: dict[str, Any]) -> Any:
        validator = compiled(part)

        class Counted:
            def iter_errors(self, found: Any) -> Any:
                nonlocal looks
                looks += 1
                return validator.iter_errors(found)

            def is_valid(self, found: Any) -> bool:
                return bool(validator.is_valid(found))

        return Counted()

    coercer._compiled = counting  # type: ignore[method-assign]
    assert coercer({"v": value}).changes == ()
    assert looks <= 100


def test_more_changes_than_anybody_makes_by_mistake_are_none() -> None:
    assert len(SHAPED({"list": ["1"] * 900}).changes) == 900
    assert SHAPED({"list": ["1"] * 1100}).changes == ()


def test_edits_copy_only_what_lies_on_their_way() -> None:
    value = {"a": [{"b": 1}, {"b": 2}], "c": {"d": 3}}
    edited = applied(value, [Edit(("a", 0, "b"), 9, ""), Edit(("e",), 8, "")])
    assert edited == {"a": [{"b": 9}, {"b": 2}], "c": {"d": 3}, "e": 8}
    assert value == {"a": [{"b": 1}, {"b": 2}], "c": {"d": 3}}
    assert edited["c"] is value["c"]
    assert edited["a"][1] is value["a"][1]


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
def test_what_keeps_the_schema_is_never_touched_but_for_doubles_that_are_integers(arguments: Any) -> None:
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
def test_reading_twice_reads_once(arguments: dict[str, Any]) -> None:
    once = SHAPED(arguments)
    if once.losses:
        return
    again = SHAPED(once.value)
    assert again.changes == ()
    assert canonical(again.value) == canonical(once.value)


def test_of_very_many_values_none_is_read() -> None:
    read = Coercer(dump({"type": "object", "properties": {"list": {"type": "array", "items": {"type": "integer"}}}}))
    few, many = {"list": ["1"] + [1] * 1000}, {"list": ["1"] + [1] * MANY_PARTS}
    assert [change.path for change in read(few).changes] == ["/list/0"]
    assert (read(many).value, read(many).changes) == (many, ())
    within = read({"list": dump(many["list"]).decode()})
    assert (within.value, [change.path for change in within.changes]) == (many, ["/list"])
