"""The published JSON Schema accepts what the contract accepts, as far as single fields go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from toolmesh.registry.v1.tool_manifest_pb2 import ToolManifest
from toolmesh_sdk.cli.main import build
from toolmesh_sdk.manifests.json_schema import manifest_schema
from typer.testing import CliRunner

SAMPLES = sorted((Path(__file__).parents[3] / "examples" / "packs").glob("*/manifests/*.json"))
SHORT: dict[str, Any] = {
    "$schema": "manifest.schema.json",
    "namespace": "acme",
    "tool_id": "word_count",
    "description": "Counts the words of a text.",
    "execution": {"entry_point": "acme/words:count"},
}
validator = jsonschema_rs.Draft202012Validator(manifest_schema())


def test_it_is_a_schema_and_describes_every_field() -> None:
    schema = manifest_schema()
    jsonschema_rs.meta.validate(schema)
    assert schema["properties"].keys() - {"$schema"} == set(ToolManifest.DESCRIPTOR.fields_by_name)
    assert all(each["description"] for name, each in schema["properties"].items() if name != "$schema")


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_the_samples_match(path: Path) -> None:
    assert [error.message for error in validator.iter_errors(json.loads(path.read_text()))] == []


def test_a_short_manifest_matches() -> None:
    assert validator.is_valid(SHORT)


@pytest.mark.parametrize(
    "wrong",
    [
        {"colour": "red"},
        {"tool_id": "Word-Count"},
        {"mutation_class": "harmless"},
        {"priority": 11},
        {"tags": ["a", "a"]},
        {"execution": {"timeout_default": "5 seconds"}},
        {"execution": {"network_policy": {"allowed_ports": [0]}}},
        {"annotations": {"a": 1}},
        {"schema_version": "9"},
    ],
)
def test_a_wrong_field_does_not(wrong: dict[str, Any]) -> None:
    assert not validator.is_valid(SHORT | wrong)


def test_the_command_prints_it() -> None:
    ran = CliRunner().invoke(build(plugins=()), ["tools", "schema", "manifest"])
    assert json.loads(ran.stdout) == manifest_schema()
