"""Contracts compiled from JSON Schemas."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.json.jsonio import dump
from libs.common.redaction.scanner import Scanner
from services.executor.adapters.registry.json_schema import (
    MANY_PARTS,
    SchemaError,
    defaults_of,
    input_contract,
    output_contract,
)

TEXT = {"properties": {"text": {"type": "string"}}}


def broken(schema: Any, value: Any) -> set[tuple[str, str]]:
    return {(v.path, v.rule) for v in input_contract(dump(schema), ()).violations(value)}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", **TEXT},
        {"type": "object", **TEXT, "additionalProperties": True},
        {"type": "object", **TEXT, "additionalProperties": {}},
        {"type": "object", "allOf": [TEXT]},
        {"type": "object", "$ref": "#/$defs/a", "$defs": {"a": TEXT}},
    ],
)
def test_an_undeclared_argument_is_refused(schema: Any) -> None:
    assert broken(schema, {"text": "a"}) == set()
    assert broken(schema, {"text": "a", "x/y": 1, "z": 2}) == {
        ("/x~1y", "unevaluatedProperties"),
        ("/z", "unevaluatedProperties"),
    }


def test_arguments_that_the_schema_declares_by_pattern_or_type_are_declared() -> None:
    schema = {"type": "object", "patternProperties": {"^x-": {"type": "string"}}}
    assert broken(schema, {"x-a": "1"}) == set()
    assert broken({"type": "object", "additionalProperties": {"type": "integer"}}, {"n": 1}) == set()
    assert broken({"type": "object", "additionalProperties": {"type": "integer"}}, {"n": "s"}) == {("/n", "type")}


def test_undeclared_result_properties_are_allowed() -> None:
    assert list(output_contract(dump({"type": "object", **TEXT}), ()).violations({"more": 1})) == []


def test_formats_are_checked() -> None:
    schema = {"type": "object", "properties": {"at": {"type": "string", "format": "date-time"}}}
    assert broken(schema, {"at": "yesterday"}) == {("/at", "format")}


def test_all_violations_come_with_pointers_and_without_values() -> None:
    schema = {
        "type": "object",
        "properties": {"list": {"type": "array", "items": {"enum": [1, 2]}}, "inner": {"required": ["a"]}},
        "required": ["name"],
    }
    violations = input_contract(dump(schema), ()).violations({"list": [1, "hunter2"], "inner": {}})
    assert {(v.path, v.rule) for v in violations} == {
        ("/list/1", "enum"),
        ("/inner/a", "required"),
        ("/name", "required"),
    }
    assert "hunter2" not in "".join(v.message for v in violations)


def test_the_number_of_violations_is_bounded() -> None:
    schema = {"type": "object", "properties": {"list": {"items": {"type": "string"}}}}
    assert len(input_contract(dump(schema), ()).violations({"list": [1] * 1000})) == 100


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "https://example.com/schema.json"},
        {"$ref": "file:///etc/passwd"},
        {"$ref": "#/$defs/missing"},
        {"type": "strange"},
        {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"},
        {"properties": {"a": {"pattern": "("}}},
        {"properties": {"a": {"pattern": "^(?=(a+)+$)b"}}},
        {
            "$ref": "#/$defs/a0",
            "$defs": {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)} | {"a40": {}},
        },
        [],
    ],
)
def test_an_invalid_remote_or_unbounded_schema_is_not_compiled(schema: Any) -> None:
    with pytest.raises(SchemaError):
        input_contract(dump(schema), ())


def test_defaults_are_those_of_the_top_level() -> None:
    schema = {"properties": {"a": {"default": 1}, "b/c": {"default": None}, "d": {"properties": {"e": {"default": 2}}}}}
    assert [(d.argument, d.pointer, d.value) for d in defaults_of(dump(schema))] == [
        ("a", "/a", 1),
        ("b/c", "/b~1c", None),
    ]


def test_sensitive_fields_come_from_the_manifest_and_the_schema() -> None:
    schema = dump({"type": "object", "properties": {"a": {"x-sensitivity": "high"}, "b": {}, "c": {}}})
    declared = input_contract(schema, ["/b"]).declared
    shown = Scanner().value({"a": 1, "b": 2, "c": 3}, declared).value
    assert shown == {"a": "[redacted:declared]", "b": "[redacted:declared]", "c": 3}
    assert input_contract(dump({"type": "object"}), ()).declared is None


@pytest.mark.parametrize("value", [{"a": {1, 2}}, object(), b"bytes", {1: 2}])
def test_a_value_that_is_not_json_violates_every_schema(value: Any) -> None:
    assert [
        violation.rule for violation in output_contract(b'{"properties":{"a":{"type":"string"}}}', ()).violations(value)
    ] == ["json"]


def test_a_very_large_value_reports_only_its_first_violation() -> None:
    """Collecting all errors of a 3 MB call takes half a minute, which would block the event loop."""
    schema = {"type": "object", "properties": {"list": {"type": "array", "items": {"type": "integer"}}}}
    assert broken(schema, {"list": [1] * (MANY_PARTS - 2) + ["x"]}) == {(f"/list/{MANY_PARTS - 2}", "type")}
    assert len(broken(schema, {"list": ["x"] * (MANY_PARTS - 1)})) == 100
    assert broken(schema, {"list": ["x"] * MANY_PARTS}) == {("/list/0", "type")}
    assert len(broken(schema, {"list": [], **{f"x{n}": n for n in range(MANY_PARTS)}})) == 100
    assert broken(schema, {"list": [1] * (2 * MANY_PARTS)}) == set()
