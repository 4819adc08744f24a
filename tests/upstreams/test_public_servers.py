"""Public MCP servers, pinned by version and hash: connected by one command, called, changed, killed and revived."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.harness.mesh import Mesh, cli, running_mesh
from tests.harness.stores import wait_until

pytestmark = [pytest.mark.upstreams, pytest.mark.timeout(3000)]
SECONDS = 300.0
FOLDER = "{folder}"
"""Stands for a folder of the test in options and arguments."""


@dataclass(frozen=True)
class Server:
    """A public server, a tool of it, and a part of that tool's definition in the server's code."""

    package: str
    digest: str
    tool: str
    arguments: dict[str, Any]
    answer: str
    """What the result holds."""
    defined_in: str
    definition: str
    options: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    changed: str = ""
    """The tool whose definition that is, if it is another."""


SERVERS = [
    Server(
        "pypi:mcp-server-time==2026.10.19",
        "5c099a001c6ca78260bda419f2e9b2aabee1adc4fe6ca56d8959871ad8da58a1",
        "get_current_time",
        {"timezone": "UTC"},
        "UTC",
        "mcp_server_time/server.py",
        "Get current time in a specific timezone",
    ),
    Server(
        "pypi:mcp-server-git==2026.10.19",
        "d4bfe88847089ed93d8e2dfc7ec97a23e5d067cfd165ee811e42675b614ab409",
        "git_log",
        {"repo_path": FOLDER},
        "the first commit",
        "mcp_server_git/server.py",
        "Shows the commit logs",
        ("--mount", FOLDER),
        ("--repository", FOLDER),
    ),
    Server(
        "pypi:mcp-server-fetch==2026.10.24",
        "3dbcb37801a037b29d486f791328a38354f6b2a8ab54ada8064ecf7268a826bf",
        # It has no network here, so it is asked for its prompts.
        "prompts/list",
        {},
        "fetch",
        "mcp_server_fetch/server.py",
        "Maximum number of characters to return.",
        changed="fetch",
    ),
    Server(
        "npm:@modelcontextprotocol/server-filesystem@2026.8.31",
        "sha512-kKaFkyAh6oipvc9+EAbJ552JafnMnOq5nzmzWkp1jJdBhTAAGpmIpWihUG1+rfNhmEFM98gUZDdCHCDD4v6a7Q==",
        "list_directory",
        {"path": FOLDER},
        "README",
        "dist/index.js",
        "Get a detailed listing of all files and directories in a specified path. ",
        ("--mount", FOLDER),
        (FOLDER,),
    ),
    Server(
        "npm:@modelcontextprotocol/server-everything@2026.8.31",
        "sha512-5U3OZh8Xq0Li4nA26l6uNvV9/1suMDuWSn+NjLZIhzinhMY6N3A4DCrxVecBGPf2PsNFKTEv5krxGPRwzxc7jQ==",
        "echo",
        {"message": "hello from outside"},
        "hello from outside",
        "dist/tools/echo.js",
        "Echoes back the input string",
    ),
]


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    with running_mesh(tmp_path_factory.mktemp("public-servers") / "state") as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository with one commit."""
    made = tmp_path / "project"
    made.mkdir()
    tmp_path.chmod(0o755)
    (made / "README").write_text("A project of the test.")
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.com")
    for words in (("init", "-q"), ("add", "."), (*identity, "commit", "-q", "-m", "the first commit")):
        subprocess.run(["git", *words], cwd=made, check=True, capture_output=True)
    return made


@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.package)
def test_a_public_server_is_connected_called_changed_accepted_killed_and_revived(
    mesh: Mesh, folder: Path, server: Server
) -> None:
    def toolmesh(*words: str) -> dict[str, Any]:
        return json.loads(cli(*words, "--json", state=mesh.state, check=False).stdout)  # type: ignore[no-any-return]

    def fill_in(words: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(word.replace(FOLDER, str(folder)) for word in words)

    changed = server.changed or server.tool
    options = ("--json", "--read-only", changed, "--timeout", str(SECONDS), *fill_in(server.options))
    words = ("--", *fill_in(server.words)) if server.words else ()
    connected = json.loads(cli("connect", "mcp", server.package, *options, *words, state=mesh.state).stdout)["upstream"]
    place = installed(connected)
    assert (connected["state"], pinned_digest(place, server.package)) == ("ready", server.digest)
    states = {tool["native_name"]: tool["state"] for tool in connected["tools"]}
    sys.stdout.write(f"{server.package}: {states}\n")
    assert states[server.tool] == states[changed] == "admitted"

    name, upstream = f"{connected['id']}.{server.tool.replace('/', '_')}", str(connected["id"])
    arguments = json.dumps(server.arguments).replace(FOLDER, str(folder))

    def answers() -> bool:
        return server.answer in json.dumps(toolmesh("call", name, arguments).get("content", ""))

    def state_of_changed() -> str:
        shown = toolmesh("upstreams", "show", upstream)["upstream"]["tools"]
        return next(str(tool["state"]) for tool in shown if tool["native_name"] == changed)

    wait_until(answers, "an answer of the server", SECONDS)

    # Its code changes on the disk, and the next process offers another definition.
    rewrite(code_of(place, server), server.definition, "Does something else altogether.")
    assert kill_processes(place)
    wait_until(lambda: state_of_changed() == "quarantined", "the quarantine", SECONDS)
    refused = toolmesh("call", f"{upstream}.{changed}", arguments)
    assert refused["error"]["reason"] == "TOOL_UNAVAILABLE"
    toolmesh("upstreams", "accept", upstream, "--yes")
    assert state_of_changed() == "admitted"
    wait_until(answers, "an answer under the accepted definition", SECONDS)

    assert kill_processes(place)
    wait_until(answers, "an answer of another process", SECONDS)
    wait_until(lambda: is_ready(toolmesh("upstreams", "refresh", upstream)), "a server that is ready", SECONDS)
    toolmesh("upstreams", "remove", upstream)


def is_ready(document: dict[str, Any]) -> bool:
    return bool(document["upstream"]["state"] == "ready")


def installed(upstream: dict[str, Any]) -> Path:
    """Return the folder of an installed package."""
    return Path(
        next(mount["path"] for mount in upstream["endpoint"]["mcp_stdio"]["mounts"] if "/upstreams/" in mount["path"])
    )


def pinned_digest(place: Path, package: str) -> str:
    """Return the hash of the package itself by which it was installed."""
    if package.startswith("pypi:"):
        lines = (place / "requirements.lock").read_text().splitlines()
        [line] = [line for line in lines if line.startswith(package.removeprefix("pypi:") + " ")]
        return line.rpartition("sha256:")[2]
    name = package.removeprefix("npm:").rpartition("@")[0]
    packages = json.loads((place / "package-lock.json").read_bytes())["packages"]
    return str(packages[f"node_modules/{name}"]["integrity"])


def code_of(place: Path, server: Server) -> Path:
    """Return the file with the definition."""
    if server.package.startswith("pypi:"):
        return place / server.defined_in
    return place / "node_modules" / server.package.removeprefix("npm:").rpartition("@")[0] / server.defined_in


def rewrite(path: Path, before: str, after: str) -> None:
    """Change a file that no one may write."""
    text = path.read_text()
    assert before in text
    path.chmod(0o644)
    path.write_text(text.replace(before, after))
    path.chmod(0o444)


def kill_processes(place: Path) -> int:
    """Kill every process whose command line names a folder of this test, and return how many there were."""
    count = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if str(place).encode() in (folder / "cmdline").read_bytes():
                os.kill(int(folder.name), signal.SIGKILL)
                count += 1
    return count
