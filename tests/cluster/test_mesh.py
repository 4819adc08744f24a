"""The whole mesh on a real cluster: the first call, tools in sandboxes, and the log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cluster.deployed_mesh import DeployedMesh
from tests.cluster.running_cluster import REPOSITORY

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600)]
MANIFESTS = REPOSITORY / "examples" / "packs" / "textkit" / "manifests"
CALLS = 100


def test_the_first_call_is_answered_through_the_edge_and_recorded(mesh: DeployedMesh, token: str) -> None:
    assert "hello" in mesh.call(token, "call", "echo", '{"text": "hello"}')
    assert "core.echo" in mesh.call(token, "audit", "tail")


def test_a_tool_runs_in_a_sandbox_of_the_executors_pod(mesh: DeployedMesh, token: str) -> None:
    printed = mesh.call(token, "call", "samples.word_statistics", '{"text": "to be or not to be"}')
    assert '"words"' in printed


@pytest.fixture
def kernel_tool(mesh: DeployedMesh, token: str, tmp_path: Path) -> DeployedMesh:
    """A tool that demands gVisor."""
    manifest = json.loads((MANIFESTS / "word_statistics.json").read_text())
    manifest["tool_id"] = "kernel_statistics"
    manifest["interface"]["safety"]["sandbox_tier"] = "kernel"
    (tmp_path / "kernel_statistics.json").write_text(json.dumps(manifest))
    mesh.call(token, "tools", "register", str(tmp_path))
    return mesh


def test_a_hundred_calls_of_each_tier_are_in_a_log_that_verifies(kernel_tool: DeployedMesh, token: str) -> None:
    for kind in ("echo", "process", "kernel"):
        calls = kernel_tool.call_many(token, kind, CALLS)
        assert calls.failures == []
        assert len(set(calls.invocations.values())) == CALLS
    kernel_tool.call(token, "audit", "verify")
