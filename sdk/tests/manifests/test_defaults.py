"""Documents are completed with defaults that allow the least, and never changed where they say something."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from toolmesh_sdk.manifests.defaults import DEFAULTS, complete, title_of

SAMPLES = sorted((Path(__file__).parents[3] / "examples" / "packs").glob("*/manifests/*.json"))


def test_every_documented_default_is_filled_in() -> None:
    filled = complete({"namespace": "acme", "tool_id": "read_file", "execution": {"entry_point": "a/b:c"}})
    for default in DEFAULTS:
        value: Any = filled
        for step in default.path.split("."):
            value = value[step]
        assert value, default.path


def test_what_is_left_out_allows_the_least() -> None:
    filled = complete({})
    assert filled["mutation_class"] == "write_irreversible"
    assert filled["idempotency"] == {"mode": "key_required", "uncertain_outcome": "fail"}
    assert filled["input"]["schema"]["additionalProperties"] is False
    assert filled["permission"]["required_scopes"] == ["tools:call"]
    assert "interface" not in filled
    assert "dry_run_supported" not in filled


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_a_complete_manifest_stays_as_it_is(path: Path) -> None:
    written = json.loads(path.read_text())
    assert complete(written) == written


@pytest.mark.parametrize(
    ("execution", "runner", "kind"),
    [
        ({"entry_point": "pack/module:function"}, "python", "function"),
        ({"entry_point": '["pack:a/b.py"]'}, "command", "shell_command"),
        ({"http": {"url": "https://example.com"}}, "http", "openapi_operation"),
        ({"runner": "builtin"}, "builtin", "custom"),
    ],
)
def test_the_runner_follows_from_the_implementation(execution: dict[str, Any], runner: str, kind: str) -> None:
    filled = complete({"execution": execution})
    assert (filled["execution"]["runner"], filled["kind"]) == (runner, kind)


def test_what_is_no_object_is_left_alone() -> None:
    assert complete([]) == []
    assert complete({"input": 3})["input"] == 3


def test_a_title_is_the_id_in_words() -> None:
    assert title_of("read_text-file") == "Read text file"
