"""Manifests that people write become the contract's message, or are refused with everything that is wrong with them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from toolmesh.common.v1.error_table import Reason
from toolmesh.registry.v1 import tool_manifest_pb2 as pb
from toolmesh_sdk.cli.views.documents import message_to_dict
from toolmesh_sdk.errors import ToolmeshError
from toolmesh_sdk.manifests.parse import manifest_from

SAMPLES = sorted((Path(__file__).parents[3] / "examples" / "packs").glob("*/manifests/*.json"))
WRITTEN: dict[str, Any] = {
    "schema_version": "0.2.0",
    "kind": "function",
    "tags": ["a", "b"],
    "priority": 3,
    "annotations": {"colour": "red"},
    "input": {"schema": {"type": "object", "maximum": 18446744073709551615}, "internal_only_fields": ["/t"]},
    "execution": {"runner": "python", "timeout_default": "1.25s", "network_policy": {"allowed_ports": [443]}},
    "mutation_class": "read_only",
    "dry_run_supported": True,
    "side_effects": [{"resource": "file:a", "operation": "create"}],
    "scheduling": {},
}


def test_every_kind_of_field_is_read() -> None:
    manifest = manifest_from(WRITTEN)
    assert (manifest.kind, manifest.mutation_class) == (pb.TOOL_KIND_FUNCTION, pb.MUTATION_CLASS_READ_ONLY)
    assert json.loads(manifest.input.schema)["maximum"] == 18446744073709551615
    assert manifest.execution.timeout_default.ToMilliseconds() == 1250
    assert dict(manifest.annotations) == {"colour": "red"}
    assert [effect.operation for effect in manifest.side_effects] == [pb.SIDE_EFFECT_OPERATION_CREATE]
    assert manifest.HasField("scheduling")


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_what_ships_as_a_sample_can_be_read_and_says_the_same(path: Path) -> None:
    written = json.loads(path.read_text())
    shown = message_to_dict(manifest_from(written))
    assert {name: shown[name] for name in ("tool_id", "kind", "mutation_class")} == {
        name: written[name] for name in ("tool_id", "kind", "mutation_class")
    }
    assert shown["input"]["schema"] == written["input"]["schema"]


def broken(pointer: str, value: Any) -> dict[str, Any]:
    made = copy.deepcopy(WRITTEN)
    *parents, last = pointer.strip("/").split("/")
    place: Any = made
    for step in parents:
        place = place[step]
    place[last] = value
    return made


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("/unheard_of", 1),
        ("/kind", "sorcery"),
        ("/kind", "unspecified"),
        ("/kind", 1),
        ("/tags", "a"),
        ("/tags", [1]),
        ("/priority", "3"),
        ("/priority", 1.5),
        ("/priority", True),
        ("/priority", 1 << 40),
        ("/dry_run_supported", "true"),
        ("/annotations", {"colour": 1}),
        ("/execution", []),
        ("/execution/timeout_default", 5),
        ("/execution/timeout_default", "5 minutes"),
        ("/execution/network_policy", "none"),
        ("/side_effects", [{"operation": "explode"}]),
        ("/title", None),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(pointer: str, value: Any) -> None:
    with pytest.raises(ToolmeshError) as caught:
        manifest_from(broken(pointer, value))
    assert caught.value.reason is Reason.TOOL_MANIFEST_INVALID
    assert [violation.path.startswith(pointer) for violation in caught.value.violations] == [True]


def test_all_problems_of_a_manifest_are_reported_at_once() -> None:
    with pytest.raises(ToolmeshError) as caught:
        manifest_from({"kind": 1, "tags": 2, "nothing": 3})
    assert [violation.path for violation in caught.value.violations] == ["/kind", "/tags", "/nothing"]


@pytest.mark.parametrize("document", [None, [], "x", 1])
def test_only_an_object_is_a_manifest(document: Any) -> None:
    with pytest.raises(ToolmeshError):
        manifest_from(document)
