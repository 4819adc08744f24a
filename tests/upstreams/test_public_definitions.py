"""The definitions that public MCP servers publish, read from the servers themselves, as minimal manifests."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from toolmesh_sdk.cli.installs.npm import install_npm
from toolmesh_sdk.cli.installs.package import InstalledServer
from toolmesh_sdk.cli.installs.pypi import install_pypi

from authoring.manifests.check_manifest import Problem, check_manifest
from authoring.manifests.violation_advice import merge_patch
from services.executor.adapters.sandbox.bubblewrap.sandbox import BubblewrapSandbox
from services.executor.adapters.sandbox.port import Plan, SandboxedProcess

pytestmark = [pytest.mark.upstreams, pytest.mark.timeout(3000)]
MIB = 1 << 20
SCRATCH = "/tmp"


@dataclass(frozen=True)
class Published:
    """A package at a version, what its server needs to start without network, and how many tools it lists."""

    namespace: str
    package: str
    tools: int
    words: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


PACKAGES = [
    Published("filesystem", "npm:@modelcontextprotocol/server-filesystem@2026.8.31", 14, (SCRATCH,)),
    Published("git", "pypi:mcp-server-git==2026.10.19", 12),
    Published(
        "github",
        "npm:@modelcontextprotocol/server-github@2025.4.8",
        26,
        environment=(("GITHUB_PERSONAL_ACCESS_TOKEN", "none"),),
    ),
    Published("fetch", "pypi:mcp-server-fetch==2026.10.24", 1),
    Published(
        "slack",
        "npm:@modelcontextprotocol/server-slack@2025.4.25",
        8,
        environment=(("SLACK_BOT_TOKEN", "none"), ("SLACK_TEAM_ID", "none")),
    ),
    Published("memory", "npm:@modelcontextprotocol/server-memory@2026.8.31", 9),
    Published("time", "pypi:mcp-server-time==2026.10.19", 2),
    Published("sequential-thinking", "npm:@modelcontextprotocol/server-sequential-thinking@2026.8.31", 1),
    Published("everything", "npm:@modelcontextprotocol/server-everything@2026.8.31", 13),
]


@pytest.fixture(scope="session")
def installs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("public-definitions")
    for parent in (folder, *folder.parents):
        if parent.stat().st_mode & 0o005 != 0o005 and parent.name.startswith("pytest"):
            parent.chmod(0o755)
    return folder


@pytest.mark.parametrize("published", PACKAGES, ids=lambda published: published.package)
def test_one_round_of_advice_admits_every_published_definition(published: Published, installs: Path) -> None:
    definitions = asyncio.run(list_tools(install(published, installs), dict(published.environment)))
    assert len(definitions) == published.tools, [definition["name"] for definition in definitions]
    for definition in definitions:
        document = {
            **definition,
            "namespace": published.namespace,
            "execution": {"entry_point": "tools/handlers:call"},
        }
        problems = blocking(document)
        assert all(problem.advice.fix for problem in problems), (definition["name"], problems)
        for problem in problems:
            document = merge_patch(document, problem.advice.fix)
        assert blocking(document) == [], definition["name"]


def blocking(document: dict[str, Any]) -> list[Problem]:
    return [problem for problem in check_manifest(document) if problem.blocks]


def install(published: Published, folder: Path) -> InstalledServer:
    kind, _, package = published.package.partition(":")
    return (install_npm if kind == "npm" else install_pypi)(package, published.words, folder)


async def list_tools(server: InstalledServer, environment: dict[str, str]) -> list[dict[str, Any]]:
    """Ask a confined server for its tools."""
    sandbox = BubblewrapSandbox("test")
    plan = Plan(
        server.command,
        {"PATH": "/usr/bin:/bin", "HOME": SCRATCH, "TMPDIR": SCRATCH, **environment},
        readable=tuple((str(mount), str(mount)) for mount in server.mounts),
        memory_bytes=2048 * MIB,
        processes=64,
    )
    process = await sandbox.start(plan)
    try:
        opening = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        await request(process, 1, "initialize", opening)
        await send(process, {"method": "notifications/initialized"})
        tools: list[dict[str, Any]] = (await request(process, 2, "tools/list", {}))["tools"]
        return tools
    finally:
        await process.kill()
        await sandbox.close()


async def request(process: SandboxedProcess, number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    await send(process, {"id": number, "method": method, "params": params})
    async with asyncio.timeout(300):
        while True:
            line = await process.stdout.readline()
            assert line, (await process.wait()).stderr_tail
            message = json.loads(line)
            if message.get("id") == number:
                result: dict[str, Any] = message["result"]
                return result


async def send(process: SandboxedProcess, message: dict[str, Any]) -> None:
    process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    await process.stdin.drain()
