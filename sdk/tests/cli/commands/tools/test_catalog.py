"""`toolmesh tools`: the list and one tool."""

from __future__ import annotations

import json
from typing import Any

import pytest
from toolmesh.registry.v1 import registry_service_pb2, tool_manifest_pb2, tool_pb2, tool_version_pb2
from toolmesh_sdk import Reason

from libs.common.errors import MeshError


def tool(name: str, title: str = "A tool") -> Any:
    return tool_pb2.Tool(name=f"tools/{name}", title=title, latest_version="1.2.0")


def version(name: str, number: str = "1.2.0", state: str = "AVAILABLE") -> Any:
    manifest = tool_manifest_pb2.ToolManifest(
        version=number,
        description="Says back what it hears.",
        mutation_class=tool_manifest_pb2.MUTATION_CLASS_READ_ONLY,
        input=tool_manifest_pb2.InputContract(schema=b'{"type":"object","maximum":18446744073709551615}'),
        output=tool_manifest_pb2.OutputContract(schema=b'{"type":"object"}'),
    )
    return tool_version_pb2.ToolVersion(
        name=f"tools/{name}/versions/{number}",
        manifest=manifest,
        digest="sha256:abc",
        state=tool_version_pb2.LifecycleState.Value(f"LIFECYCLE_STATE_{state}"),
        state_reason="" if state == "AVAILABLE" else "because",
    )


@pytest.fixture
def two_tools(mesh: Any) -> None:
    wide = "a title that is much wider than eighty characters, so that a table that cuts lines would cut it here"
    listed = [
        registry_service_pb2.ListedTool(tool=tool("acme.send", wide), version=version("acme.send")),
        registry_service_pb2.ListedTool(tool=tool("core.echo")),
    ]
    mesh.answer("ListTools", registry_service_pb2.ListToolsResponse(tools=listed))


@pytest.mark.usefixtures("two_tools")
def test_every_tool_is_one_line_that_is_not_cut(toolmesh: Any, mesh: Any) -> None:
    ran = toolmesh("tools", "list", "--namespace", "core", "--tag", "x")
    heading, first, second = ran.stdout.splitlines()
    assert heading.split() == ["TOOL", "VERSION", "EFFECT", "STATE", "TITLE"]
    assert first.startswith("acme.send  1.2.0")
    assert first.endswith("cut it here")
    assert "read_only" in first
    assert "available" in first
    assert second.startswith("core.echo")
    request = mesh.of("ListTools")[0].request
    assert (request.namespace, list(request.tags)) == ("core", ["x"])


def test_tools_are_listed_and_shown_with_the_names_that_are_easily_taken_for_theirs(toolmesh: Any, mesh: Any) -> None:
    confusable = version("acme.send")
    confusable.trust.look_alikes.add(name="tools/globex.sends", kind="lookalike", older=True)
    confusable.trust.look_alikes.add(name="namespaces/acmee", kind="lookalike")
    listed = registry_service_pb2.ListedTool(tool=tool("acme.send"), version=confusable)
    mesh.answer("ListTools", registry_service_pb2.ListToolsResponse(tools=[listed]))
    shown = registry_service_pb2.GetToolResponse(tool=tool("acme.send"), versions=[confusable])
    mesh.answer("GetTool", shown)
    for command in (("list",), ("show", "acme.send")):
        assert "globex.sends (older), namespaces/acmee (newer)" in toolmesh("tools", *command).stdout


@pytest.mark.usefixtures("two_tools")
def test_the_list_as_json_has_words_and_parsed_schemas(toolmesh: Any) -> None:
    tools = json.loads(toolmesh("tools", "list", "--json").stdout)["tools"]
    assert [each["tool"]["name"] for each in tools] == ["tools/acme.send", "tools/core.echo"]
    manifest = tools[0]["version"]["manifest"]
    assert manifest["mutation_class"] == "read_only"
    assert manifest["input"]["schema"]["maximum"] == 2**64 - 1
    assert "version" not in tools[1]


def test_an_empty_list_is_reported_on_stderr(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("ListTools", registry_service_pb2.ListToolsResponse())
    ran = toolmesh("tools", "list")
    assert (ran.exit_code, ran.stdout) == (0, "")
    assert ran.stderr
    assert json.loads(toolmesh("tools", "list", "--json").stdout) == {"tools": []}


def test_one_tool_is_shown_with_its_latest_version(toolmesh: Any, mesh: Any) -> None:
    versions = [version("core.echo", "2.0.0", "QUARANTINED"), version("core.echo")]
    mesh.answer("GetTool", registry_service_pb2.GetToolResponse(tool=tool("core.echo"), versions=versions))
    shown = toolmesh("tools", "show", "echo").stdout
    assert all(word in shown for word in ("core.echo", "Says back", "sha256:abc", "1.2.0 (available)", "quarantined"))
    document = json.loads(toolmesh("tools", "show", "echo", "--json").stdout)
    assert document["version"]["manifest"]["version"] == "1.2.0"
    assert [each["state"] for each in document["versions"]] == ["quarantined", "available"]


def test_what_a_version_promises_is_shown(toolmesh: Any, mesh: Any) -> None:
    promising = version("core.echo")
    promising.manifest.sla.latency_p95.FromMilliseconds(250)
    promising.manifest.sla.availability = 0.999
    mesh.answer("GetTool", registry_service_pb2.GetToolResponse(tool=tool("core.echo"), versions=[promising]))
    assert "p95 0.25 s, 99.9000% available" in toolmesh("tools", "show", "echo").stdout
    document = json.loads(toolmesh("tools", "show", "echo", "--json").stdout)
    assert document["version"]["manifest"]["sla"] == {"latency_p95": 0.25, "availability": 0.999}
    mesh.answer(
        "GetTool", registry_service_pb2.GetToolResponse(tool=tool("core.echo"), versions=[version("core.echo")])
    )
    assert "available," not in toolmesh("tools", "show", "echo").stdout


def test_another_version_is_resolved(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("GetTool", registry_service_pb2.GetToolResponse(tool=tool("core.echo")))
    mesh.answer("ResolveTool", registry_service_pb2.ResolveToolResponse(version=version("core.echo", "1.1.0")))
    document = json.loads(toolmesh("tools", "show", "echo", "--version", "~1.1", "--json").stdout)
    assert document["version"]["manifest"]["version"] == "1.1.0"
    assert mesh.of("ResolveTool")[0].request.version_constraint == "~1.1"


def test_an_unknown_tool_points_to_the_list(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("GetTool", MeshError(Reason.TOOL_NOT_FOUND, metadata={"tool": "nosuch"}))
    ran = toolmesh("tools", "show", "nosuch")
    assert ran.exit_code == 1
    assert "toolmesh tools list" in ran.stderr


def test_a_tool_that_nothing_runs_is_listed_as_such(toolmesh: Any, mesh: Any) -> None:
    stranded = version("acme.send")
    stranded.no_runner = "no executor has loaded the tool pack acme"
    listed = registry_service_pb2.ListedTool(tool=tool("acme.send"), version=stranded)
    mesh.answer("ListTools", registry_service_pb2.ListToolsResponse(tools=[listed]))
    assert "available, no runner" in toolmesh("tools", "list").stdout
    mesh.answer("GetTool", registry_service_pb2.GetToolResponse(tool=tool("acme.send"), versions=[stranded]))
    assert f"no runner {stranded.no_runner}" in toolmesh("tools", "show", "acme.send").stdout
