"""Tool definitions in the form of public MCP servers, as minimal manifests: admitted after one round of advice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from authoring.manifests.check_manifest import Problem, check_manifest
from authoring.manifests.violation_advice import merge_patch
from services.registry.domain.publishing.nested_objects import close_objects

DEFINITIONS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "public_definitions.json").read_text())


def minimal(entry: dict[str, Any]) -> dict[str, Any]:
    """The definition as it is published, with the two things that it lacks: a namespace and an implementation."""
    return {
        **entry["definition"],
        "namespace": entry["server"],
        "execution": {"entry_point": "tools/handlers:call"},
    }


def blocking(document: dict[str, Any]) -> list[Problem]:
    return [problem for problem in check_manifest(document) if problem.blocks]


def test_there_are_36_of_13_servers() -> None:
    assert len(DEFINITIONS) == 36
    assert len({entry["server"] for entry in DEFINITIONS}) == 13


@pytest.mark.parametrize("entry", DEFINITIONS, ids=lambda entry: entry["definition"]["name"])
def test_one_round_of_advice_admits_it(entry: dict[str, Any]) -> None:
    document = minimal(entry)
    problems = blocking(document)
    assert problems
    assert all(problem.advice.fix for problem in problems), problems
    for problem in problems:
        document = merge_patch(document, problem.advice.fix)
    assert blocking(document) == []


@pytest.mark.parametrize("entry", DEFINITIONS, ids=lambda entry: entry["definition"]["name"])
def test_it_is_admitted_at_once_in_the_words_of_a_manifest(entry: dict[str, Any]) -> None:
    """What an author writes who has read the page: a name in snake_case and the schema in its place."""
    definition = entry["definition"]
    schema = {name: value for name, value in definition["inputSchema"].items() if name != "$schema"}
    if schema.get("additionalProperties") is True:
        del schema["additionalProperties"]
    schema = close_objects(schema)
    document = {
        "namespace": entry["server"],
        "tool_id": definition["name"].lower().replace("-", "_"),
        "description": definition["description"][:2000],
        "mutation_class": "read_only",
        "input": {"schema": schema},
        "execution": {"entry_point": "tools/handlers:call"},
    }
    assert blocking(document) == []
