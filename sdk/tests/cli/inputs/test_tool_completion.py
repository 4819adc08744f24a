"""Tool names: completed in a shell, and suggested for a mistyped one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from toolmesh.registry.v1 import registry_service_pb2, tool_pb2
from toolmesh_sdk import Reason
from toolmesh_sdk.cli.inputs.tool_completion import similar_names

from libs.common.errors import MeshError

NAMES = ["acme.send_email", "acme.send_mail", "core.arithmetic", "core.echo", "samples.word_statistics"]


@pytest.fixture
def listed(mesh: Any) -> None:
    tools = [registry_service_pb2.ListedTool(tool=tool_pb2.Tool(name=f"tools/{name}")) for name in NAMES]
    mesh.answer("ListTools", registry_service_pb2.ListToolsResponse(tools=tools))


@pytest.mark.parametrize(
    ("asked", "similar"),
    [
        ("ecko", ["core.echo"]),
        ("tools/core.ech/versions/1.0.0", ["core.echo"]),
        ("word_statistic@^1", ["samples.word_statistics"]),
        ("acme.send_emial", ["acme.send_email", "acme.send_mail"]),
        ("quite_different", []),
    ],
)
def test_similar_names(asked: str, similar: list[str]) -> None:
    assert similar_names(asked, NAMES) == similar


def test_a_tool_that_is_not_found_is_answered_with_a_similar_one(toolmesh: Any, mesh: Any, listed: None) -> None:
    mesh.answer("Invoke", MeshError(Reason.TOOL_NOT_FOUND))
    done = toolmesh("call", "ecko")
    assert (done.exit_code, "core.echo" in done.stderr) == (1, True)
    mesh.answer("ListTools", MeshError(Reason.SERVICE_UNAVAILABLE))
    assert toolmesh("call", "ecko").exit_code == 1


def complete(state: Path, *words: str) -> list[str]:
    completing = {
        "_TOOLMESH_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TOOLMESH_")}
    environment |= {"TOOLMESH_STATE": str(state), "HOME": str(state), **completing}
    command = [str(Path(sys.executable).parent / "toolmesh")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()


def test_a_shell_completes_commands_tools_and_contexts(local_mesh: Path, mesh: Any, listed: None) -> None:
    assert complete(local_mesh, "toolmesh", "vers") == ["version"]
    assert complete(local_mesh, "toolmesh", "call", "ec") == ["echo"]
    assert complete(local_mesh, "toolmesh", "context", "use", "l") == ["local"]
    assert complete(local_mesh / "nothing", "toolmesh", "call", "ec") == []


def test_the_script_of_each_shell_names_the_command(toolmesh: Any) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "_TOOLMESH_COMPLETE" in toolmesh("completion", shell).stdout
    assert toolmesh("completion", "powershell").exit_code == 2
