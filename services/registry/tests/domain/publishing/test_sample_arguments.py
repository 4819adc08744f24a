"""Sample arguments: admitted by the schema that they are made of, or none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from libs.common.json.jsonio import dump
from services.registry.adapters.json_schemas import JsonSchemaChecker
from services.registry.domain.publishing.sample_arguments import sample_arguments

CHECKER = JsonSchemaChecker()
ROOT = Path(__file__).parents[5]
PUBLIC = json.loads((ROOT / "authoring/tests/manifests/public_definitions.json").read_text())
TREE: dict[str, Any] = {
    "type": "object",
    "properties": {"text": {"type": "string"}, **{f"b{n}": {"$ref": "#"} for n in range(9)}},
    "required": ["text"],
}


def sampled(**properties: Any) -> dict[str, Any] | None:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return sample_arguments(schema, CHECKER)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string"}, "text"),
        ({"type": "string", "minLength": 6}, "textt" + "t"),
        ({"type": "string", "maxLength": 2}, "te"),
        ({"type": "string", "pattern": "^[0-9]+$"}, "1"),
        ({"type": "string", "format": "email"}, "a@example.com"),
        ({"enum": ["red", "blue"]}, "red"),
        ({"const": 7}, 7),
        ({"type": "integer", "default": 5}, 5),
        ({"type": "integer", "minimum": 3}, 3),
        ({"type": "number", "exclusiveMinimum": 0, "multipleOf": 0.5}, 0.5),
        ({"type": "integer", "maximum": -4}, -4),
        ({"type": ["null", "boolean"]}, True),
        ({"type": "null"}, None),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 2}, [1, 1]),
        ({"type": "array", "prefixItems": [{"type": "boolean"}]}, [True]),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, 1),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}, {"a": "text"}),
        (
            {"allOf": [{"required": ["a"], "type": "object"}, {"required": ["b"], "type": "object"}]},
            {"a": "text", "b": "text"},
        ),
    ],
)  # fmt: skip
def test_a_value_of_every_kind_is_made(schema: Any, value: Any) -> None:
    assert sampled(one=schema) == {"one": value}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "integer", "minimum": 1e20},
        {"type": "integer", "minimum": 2**63 - 1},
        {"type": "number", "exclusiveMinimum": 1.7e308, "multipleOf": 1.7e308},
        {"type": "string", "minLength": 3.0, "maxLength": 5.0},
        {"type": "string", "minLength": 1e20},
        {"type": "array", "items": {"type": "string"}, "minItems": 2.0},
    ],
)
def test_numbers_of_every_size_and_form_are_read(schema: Any) -> None:
    made = sampled(one=schema)
    assert made is None or json.loads(dump(made)).keys() == {"one"}


def test_a_pattern_that_backtracks_without_end_costs_nothing() -> None:
    assert sampled(one={"type": "string", "minLength": 16, "pattern": "^(" + "|".join("a" * 20) + ")*b$"}) is None


def test_references_are_followed_and_optional_arguments_left_out() -> None:
    schema = {
        "type": "object",
        "$defs": {"name": {"type": "string", "pattern": "^[A-Z]+$"}},
        "properties": {"name": {"$ref": "#/$defs/name"}, "other": {"type": "string"}},
        "required": ["name"],
    }
    assert sample_arguments(schema, CHECKER) == {"name": "A"}


def test_what_cannot_be_met_gives_no_arguments() -> None:
    assert sampled(one=False) is None
    assert sampled(one={"type": "string", "pattern": "^[a-z]{40}[0-9]$"}) is None
    assert sample_arguments({"type": "objekt"}, CHECKER) is None
    assert sample_arguments(None, CHECKER) is None


def test_a_schema_that_asks_for_itself_without_end_is_given_up() -> None:
    endless = {**TREE, "required": list(TREE["properties"])}
    assert sample_arguments(endless, CHECKER) is None
    assert sample_arguments(TREE, CHECKER) == {"text": "text"}


@pytest.mark.parametrize("entry", PUBLIC, ids=lambda entry: entry["definition"]["name"])
def test_the_schemas_of_public_servers_give_arguments(entry: dict[str, Any]) -> None:
    schema = {name: value for name, value in entry["definition"]["inputSchema"].items() if name != "$schema"}
    assert sample_arguments(schema, CHECKER) is not None
