"""Advice for violations: names, patches and hints."""

from __future__ import annotations

from typing import Any

import pytest

from authoring.manifests.check_manifest import check_manifest
from authoring.manifests.violation_advice import advise, merge_patch, snake_case


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("read-file", "read_file"),
        ("readFile", "read_file"),
        ("API-post-search", "api_post_search"),
        ("HTTPServer", "http_server"),
        ("3d", "tool_3d"),
        ("ab", "ab_tool"),
        ("", "tool"),
    ],
)
def test_any_name_becomes_a_tool_id(written: str, expected: str) -> None:
    assert snake_case(written) == expected


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        ({"a": "b"}, {"a": None}, {}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [1]}, {"a": [2]}, {"a": [2]}),
        ({}, {"a": {"bb": {"c": None}}}, {"a": {"bb": {}}}),
        ("text", {"a": 1}, {"a": 1}),
    ],
)
def test_a_merge_patch_is_applied_as_the_rfc_says(target: Any, patch: Any, expected: Any) -> None:
    assert merge_patch(target, patch) == expected


def test_a_long_description_is_cut_at_a_sentence() -> None:
    text = "One sentence of thirty letters. " * 80
    fix = advise({"description": text}, "/description", "string.max_len").fix
    assert fix is not None
    assert fix["description"].endswith("letters.")
    assert len(fix["description"]) <= 2000


def test_a_misspelled_field_is_suggested() -> None:
    advice = advise({"descripton": "x"}, "/descripton", "form")
    assert "description" in advice.text
    assert advice.fix == {"descripton": None}


def test_every_open_object_is_closed_by_its_own_advice_in_lists_too() -> None:
    inner = {"type": "object", "properties": {"b": {"type": "string"}}}
    schema = {
        "type": "object",
        "properties": {"x/y": inner, "either": {"prefixItems": [inner, {"anyOf": [inner, {"type": "null"}]}]}},
    }
    document: Any = {"tool_id": "find_it", "mutation_class": "read_only", "input": {"schema": schema}}
    found = [problem for problem in check_manifest(document) if problem.rule == "schema.open_object"]
    assert len(found) == 3
    for problem in found:
        document = merge_patch(document, problem.advice.fix)
    assert not [problem for problem in check_manifest(document) if problem.rule.startswith("schema.")]


def test_a_schema_is_moved_with_the_objects_inside_of_it_closed() -> None:
    inner = {"type": "object", "properties": {"b": {"type": "string"}}}
    written = {"inputSchema": {"type": "object", "properties": {"a": {"type": "array", "items": inner}}}}
    fix = advise(written, "/inputSchema", "form").fix
    assert fix is not None
    assert fix["inputSchema"] is None
    moved = fix["input"]["schema"]["properties"]["a"]["items"]
    assert moved == {**inner, "additionalProperties": False}


def test_an_example_is_advised_that_the_schema_admits() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 3}}, "required": ["n"]}
    fix = advise({"input": {"schema": schema}}, "/input/examples", "examples.required").fix
    assert fix == {"input": {"examples": [{"arguments": {"n": 3}}]}}
    broken: tuple[Any, ...] = ({}, [], {"input": {"schema": 3}}, {"input": {"schema": {"properties": 3}}})
    for document in broken:
        assert advise(document, "/input/examples", "examples.required").fix is None


def test_a_missing_mutation_class_is_never_solved_by_a_claim() -> None:
    fix = advise({"tool_id": "x"}, "/side_effects", "side_effects.required").fix
    assert fix is not None
    assert "mutation_class" not in fix
