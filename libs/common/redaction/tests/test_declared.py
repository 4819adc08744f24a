"""The places that a payload's owner declares sensitive."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.redaction.declared import Declared
from libs.common.redaction.scanner import Scanner

REDACTED = "[redacted:declared]"
MARKED = {"type": "string", "x-sensitivity": "high"}


def redact(value: Any, schema: Any = True, *pointers: str) -> Any:
    declared = Declared.of(schema, pointers)
    assert declared is not None
    return Scanner().value(value, declared).value


def test_where_nothing_is_sensitive_there_is_nothing_to_do() -> None:
    assert Declared.of({"type": "object", "properties": {"a": {}}}, ()) is None


@pytest.mark.parametrize(
    ("schema", "value", "shown"),
    [
        ({"properties": {"a": MARKED, "b": {}}}, {"a": "s", "b": 1}, {"a": REDACTED, "b": 1}),
        ({"properties": {"a": {"items": MARKED}}}, {"a": ["s", "t"]}, {"a": [REDACTED, REDACTED]}),
        ({"prefixItems": [{}, MARKED]}, ["a", "s", "c"], ["a", REDACTED, "c"]),
        ({"additionalProperties": MARKED}, {"x": "s"}, {"x": REDACTED}),
        ({"patternProperties": {"^x": MARKED}}, {"x1": "s"}, {"x1": REDACTED}),
        ({"allOf": [{"properties": {"a": MARKED}}]}, {"a": "s"}, {"a": REDACTED}),
        ({"if": {}, "then": {"properties": {"a": MARKED}}}, {"a": "s"}, {"a": REDACTED}),
        ({"$ref": "#/$defs/p", "$defs": {"p": {"properties": {"a": MARKED}}}}, {"a": "s"}, {"a": REDACTED}),
        (
            {"properties": {"key": MARKED, "child": {"$ref": "#"}}},
            {"key": "s", "child": {"key": "t", "child": {"key": "u", "n": 1}}},
            {"key": REDACTED, "child": {"key": REDACTED, "child": {"key": REDACTED, "n": 1}}},
        ),
        ({"x-sensitivity": "high"}, {"a": 1}, REDACTED),
        ({"propertyNames": MARKED}, {"ada": 1, "bob": 2}, {REDACTED: 1, f"{REDACTED}'": 2}),
        ({"propertyNames": {"$ref": "#/$defs/n"}, "$defs": {"n": MARKED}}, {"ada": [1]}, {REDACTED: [1]}),
        ({"properties": {"a": {"contentSchema": {"properties": {"b": MARKED}}}}}, {"a": '{"b":"s"}'}, {"a": REDACTED}),
    ],
)
def test_what_the_schema_marks_is_replaced(schema: Any, value: Any, shown: Any) -> None:
    assert redact(value, schema) == shown


@pytest.mark.parametrize("reference", ["#name", "other.json", "#/$defs/missing"])
def test_what_a_reference_covers_that_cannot_be_followed_counts_as_sensitive(reference: str) -> None:
    schema = {"properties": {"a": {"$ref": reference}, "b": {}, "c": MARKED}}
    assert redact({"a": "s", "b": 1}, schema) == {"a": REDACTED, "b": 1}


def test_a_schema_without_end_hides_everything_rather_than_looping() -> None:
    assert redact({"a": 1}, {"allOf": [{"$ref": "#"}], "$defs": {"m": MARKED}}) == REDACTED


@pytest.mark.parametrize(
    ("pointer", "value", "shown"),
    [
        ("/a", {"a": {"b": 1}, "c": 2}, {"a": REDACTED, "c": 2}),
        ("/a/b", {"a": {"b": 1, "c": 2}}, {"a": {"b": REDACTED, "c": 2}}),
        ("/list/1", {"list": [1, 2]}, {"list": [1, REDACTED]}),
        (
            "/list/*/key",
            {"list": [{"key": 1}, {"key": 2, "n": 3}]},
            {"list": [{"key": REDACTED}, {"key": REDACTED, "n": 3}]},
        ),
        ("/x~1y/m~0n", {"x/y": {"m~n": 1}}, {"x/y": {"m~n": REDACTED}}),
        ("/absent", {"a": 1}, {"a": 1}),
        ("", {"a": 1}, REDACTED),
    ],
)
def test_what_the_manifest_points_at_is_replaced(pointer: str, value: Any, shown: Any) -> None:
    assert redact(value, True, pointer) == shown


def test_the_value_itself_is_left_alone() -> None:
    value = {"a": ["s"]}
    redact(value, {"properties": {"a": {"items": MARKED}}})
    assert value == {"a": ["s"]}
