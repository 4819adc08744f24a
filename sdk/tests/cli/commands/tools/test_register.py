"""`toolmesh tools register`: manifests from files to the registry, by whom, and what is said about them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from toolmesh.registry.v1 import registry_service_pb2 as pb
from toolmesh.registry.v1 import tool_version_pb2
from toolmesh_sdk import Reason

from libs.common.errors import MeshError, Violation

MANIFEST = {"tool_id": "shout", "namespace": "acme", "version": "1.0.0", "kind": "function"}
VERSION = tool_version_pb2.ToolVersion(name="tools/acme.shout/versions/1.0.0")


def write(folder: Path, name: str, content: Any) -> str:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def answer(created: bool = True, **more: Any) -> Any:
    return pb.RegisterToolResponse(version=VERSION, created=created, **more)


def test_every_manifest_is_registered_by_the_operator(toolmesh: Any, mesh: Any, tmp_path: Path) -> None:
    mesh.answer("RegisterTool", answer(), answer(created=False))
    files = [write(tmp_path, f"{name}.json", {**MANIFEST, "tool_id": name}) for name in ("shout", "whisper")]
    ran = toolmesh("tools", "register", *files)
    assert ran.exit_code == 0
    first, second = ran.stdout.splitlines()
    assert first.startswith("acme.shout@1.0.0")
    assert first != second
    calls = mesh.of("RegisterTool")
    assert [call.request.manifest.tool_id for call in calls] == ["shout", "whisper"]
    assert not any(call.request.draft for call in calls)
    assert "spiffe://toolmesh.local/operator" in calls[0].peer
    assert "authorization" not in calls[0].metadata


def test_a_draft_from_stdin_with_a_token(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("RegisterTool", answer())
    ran = toolmesh("tools", "register", "-", "--draft", "--token", "mine", stdin=json.dumps(MANIFEST))
    assert ran.exit_code == 0
    [call] = mesh.of("RegisterTool")
    assert (call.request.draft, call.metadata["authorization"]) == (True, "Bearer mine")


def test_warnings_go_to_stderr_and_into_the_document(toolmesh: Any, mesh: Any, tmp_path: Path) -> None:
    finding = {"path": "/description", "message": "says little"}
    mesh.answer("RegisterTool", answer(warnings=[finding]))
    path = write(tmp_path, "m.json", MANIFEST)
    assert "/description" in toolmesh("tools", "register", path).stderr
    ran = toolmesh("tools", "register", path, "--json")
    [document] = json.loads(ran.stdout)["registered"]
    assert (document["created"], document["warnings"][0]["path"], ran.stderr) == (True, "/description", "")


def test_several_are_one_document_and_a_refusal_keeps_no_other_back(toolmesh: Any, mesh: Any, tmp_path: Path) -> None:
    files = [write(tmp_path, f"{name}.json", {**MANIFEST, "tool_id": name}) for name in ("shout", "whisper", "sing")]
    mesh.answer("RegisterTool", answer(), answer(created=False), answer())
    done = json.loads(toolmesh("tools", "register", *files, "--json").stdout)["registered"]
    assert [each["created"] for each in done] == [True, False, True]
    mesh.answer("RegisterTool", answer(), MeshError(Reason.TOOL_MANIFEST_INVALID), answer())
    ran = toolmesh("tools", "register", *files, "--json")
    document = json.loads(ran.stdout)
    [refused] = document["refused"]
    assert (ran.exit_code, len(document["registered"])) == (1, 2)
    assert (refused["file"], refused["error"]["reason"]) == (files[1], "TOOL_MANIFEST_INVALID")


def test_a_refusal_names_everything_that_is_wrong(toolmesh: Any, mesh: Any, tmp_path: Path) -> None:
    broken = [Violation("/title", "required", "is required"), Violation("/kind", "enum", "is unknown")]
    mesh.answer("RegisterTool", MeshError(Reason.TOOL_MANIFEST_INVALID, violations=broken))
    ran = toolmesh("tools", "register", write(tmp_path, "m.json", MANIFEST))
    assert ran.exit_code == 1
    assert all(place in ran.stderr for place in ("m.json", "/title", "/kind"))


def test_a_missing_enum_is_reported_like_a_wrong_one_with_the_same_path_form(
    toolmesh: Any, mesh: Any, tmp_path: Path
) -> None:
    broken = [
        Violation("manifest.execution.runner", "enum.not_in", "must not be in list [0]"),
        Violation("manifest.side_effects[0].operation", "enum.not_in", "must not be in list [0]"),
        Violation("manifest.title", "string.min_len", "must be at least 3 characters"),
        Violation("/input/schema", "schema", "is no schema"),
    ]
    mesh.answer("RegisterTool", MeshError(Reason.INVALID_REQUEST, violations=broken))
    ran = toolmesh("tools", "register", write(tmp_path, "m.json", MANIFEST), "--json")
    found = {each["path"]: each["message"] for each in json.loads(ran.stdout)["refused"][0]["error"]["violations"]}
    assert list(found) == ["/execution/runner", "/side_effects/0/operation", "/title", "/input/schema"]
    assert all(word in found["/execution/runner"] for word in ("builtin", "python", "command"))
    assert "create" in found["/side_effects/0/operation"]
    assert found["/title"] == "must be at least 3 characters"


def test_a_folder_is_all_its_manifests_and_one_that_cannot_be_meant_is_left_out(
    toolmesh: Any, mesh: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "manifests"
    folder.mkdir()
    write(folder, "b.json", MANIFEST)
    bad = write(folder, "a.json", {**MANIFEST, "kind": "sorcery"})
    write(folder, "notes.txt", "no manifest")
    mesh.answer("RegisterTool", answer())
    ran = toolmesh("tools", "register", str(folder), "--json")
    [refused] = json.loads(ran.stdout)["refused"]
    assert (ran.exit_code, refused["file"], refused["error"]["reason"]) == (1, bad, "TOOL_MANIFEST_INVALID")
    assert len(mesh.of("RegisterTool")) == 1


def test_a_failure_of_the_mesh_ends_the_command(toolmesh: Any, mesh: Any, tmp_path: Path) -> None:
    files = [write(tmp_path, f"{name}.json", MANIFEST) for name in ("one", "two")]
    mesh.answer("RegisterTool", MeshError(Reason.UNAUTHENTICATED), answer())
    assert toolmesh("tools", "register", *files).exit_code != 0
    assert len(mesh.of("RegisterTool")) == 1


def test_a_folder_without_manifests_is_two(toolmesh: Any, mesh: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert toolmesh("tools", "register", str(tmp_path / "empty")).exit_code == 2


@pytest.mark.parametrize("content", [None, "{", '{"tool_id": "a", "tool_id": "b"}', "[" * 100_000])
def test_a_file_that_cannot_be_read_is_two(toolmesh: Any, mesh: Any, tmp_path: Path, content: str | None) -> None:
    path = str(tmp_path / "nothing.json") if content is None else write(tmp_path, "m.json", content)
    assert toolmesh("tools", "register", path).exit_code == 2
    assert mesh.of("RegisterTool") == []


def test_files_that_name_each_other_are_registered_together(toolmesh: Any, mesh: Any, tmp_path: Path) -> None:
    def register(request: Any) -> Any:
        name = f"tools/acme.{request.manifest.tool_id}/versions/1.0.0"
        if name in stored:
            return pb.RegisterToolResponse(version=tool_version_pb2.ToolVersion(name=name))
        others = [f"tools/acme.{each.tool_id}/versions/1.0.0" for each in request.beside]
        if not others:
            missing = Violation("manifest.compensation_tool", "compensation.exists", "is not registered")
            return MeshError(Reason.TOOL_MANIFEST_INVALID, violations=[missing])
        stored.update({name, *others})
        versions = [tool_version_pb2.ToolVersion(name=each) for each in (name, *others)]
        return pb.RegisterToolResponse(version=versions[0], created=True, beside=versions[1:])

    stored = set[str]()
    mesh.answer("RegisterTool", *[register] * 9)
    folder = tmp_path / "manifests"
    folder.mkdir()
    for name, by in (("shout", "whisper"), ("whisper", "shout")):
        write(folder, f"{name}.json", {**MANIFEST, "tool_id": name, "compensation_tool": f"tools/acme.{by}"})
    ran = toolmesh("tools", "register", str(folder), "--json")
    assert ran.exit_code == 0
    assert [each["created"] for each in json.loads(ran.stdout)["registered"]] == [True, True]
    sent = [(call.request.manifest.tool_id, len(call.request.beside)) for call in mesh.of("RegisterTool")]
    assert sent == [("shout", 0), ("shout", 1), ("whisper", 0)]
    alone = write(tmp_path, "alone.json", {**MANIFEST, "tool_id": "alone", "compensation_tool": "tools/acme.nothing"})
    assert toolmesh("tools", "register", alone).exit_code == 1
