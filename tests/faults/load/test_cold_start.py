"""Cold interactive tools on a machine that is busy with other work: they answer, and keep their trust."""

from __future__ import annotations

import json
import multiprocessing
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from toolmesh_sdk import Client, RetryPolicy, ToolmeshError

from tests.harness.mesh import Mesh, cli, running_mesh
from tests.harness.stores import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[3]
PACKS = ROOT / "examples" / "packs"
HAS_GVISOR = (ROOT / ".toolmesh" / "bin" / "runsc").exists() or shutil.which("runsc") is not None
TEXT = {"text": "To be, or not to be", "top": 2}
LOAD = 16
TOOLS = 4
MOST_CALLS = 3


def manifest_of(tool_id: str) -> dict[str, Any]:
    """An interactive tool that names no time limit, and no tier where the strongest one is here."""
    manifest: dict[str, Any] = json.loads((PACKS / "textkit" / "manifests" / "word_statistics.json").read_text())
    del manifest["execution"]["timeout_default"]
    if HAS_GVISOR:
        del manifest["interface"]["safety"]["sandbox_tier"]
    manifest["execution"]["timeout_class"] = "interactive"
    return manifest | {"tool_id": tool_id}


@contextmanager
def busy_machine(processes: int) -> Iterator[None]:
    """Keep the processors busy with this many processes."""
    spinning = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(processes)]
    for process in spinning:
        process.start()
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.join()


def _spin() -> None:
    while True:
        pass


@pytest.fixture(scope="module")
def own_mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    with running_mesh(tmp_path_factory.mktemp("cold"), TOOLMESH_TOOL_PACKS=str(PACKS)) as running:
        yield running


def trust_of(mesh: Mesh, tool: str) -> dict[str, Any]:
    return json.loads(cli("tools", "trust", tool, "--json", state=mesh.state).stdout)  # type: ignore[no-any-return]


def usage_after_success(mesh: Mesh, tool: str) -> dict[str, int]:
    """Return how the calls of a tool ended that say something about it, once its last call is counted."""
    usage: dict[str, int] = {}

    def counted() -> bool:
        done = cli("usage", "tool", f"samples.{tool}", "--json", state=mesh.state)
        usage.update(json.loads(done.stdout)["tool"]["usage"])
        return usage["succeeded"] > 0

    wait_until(counted, "the count of the calls")
    return {outcome: usage[outcome] for outcome in ("succeeded", "failed", "timed_out")}


def calls_until_answered(client: Client, tool: str) -> list[str]:
    """Call a tool until it answers, after the delay that each failure names. Return the outcomes."""
    outcomes: list[str] = []
    while len(outcomes) < MOST_CALLS and outcomes[-1:] != ["answered"]:
        try:
            assert client.call(f"samples.{tool}", TEXT).content["words"] == 6
            outcomes.append("answered")
        except ToolmeshError as error:
            outcomes.append(error.reason.name)
            time.sleep(error.retry_after or 0.0)
    return outcomes


def test_cold_interactive_tools_answer_on_a_busy_machine_and_keep_their_trust(own_mesh: Mesh, tmp_path: Path) -> None:
    tools = [f"cold_{number}" for number in range(TOOLS)]
    for tool in tools:
        path = tmp_path / f"{tool}.json"
        path.write_text(json.dumps(manifest_of(tool)))
        cli("tools", "register", str(path), state=own_mesh.state)
    before = [trust_of(own_mesh, f"samples.{tool}")["score"]["score"] for tool in tools]
    with (
        Client(own_mesh.edge, token=own_mesh.token(), retry=RetryPolicy(attempts=1)) as client,
        busy_machine(LOAD),
    ):
        outcomes = {tool: calls_until_answered(client, tool) for tool in tools}
    for calls in outcomes.values():
        assert calls[-1] == "answered", outcomes
        # The mesh itself may be too busy for a call, but no failure is the tool's.
        assert set(calls[:-1]) <= {"SANDBOX_NOT_READY", "SERVICE_UNAVAILABLE", "DEADLINE_EXCEEDED"}, outcomes
    for tool, score in zip(tools, before, strict=True):
        assert usage_after_success(own_mesh, tool) == {"succeeded": 1, "failed": 0, "timed_out": 0}
        assert trust_of(own_mesh, f"samples.{tool}")["score"]["score"] >= score
