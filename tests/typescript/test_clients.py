"""The official MCP clients for TypeScript against a whole mesh, in both revisions, and the examples in TypeScript."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from libs.common.ids import new_id
from tests.harness.clients.node import install_node, install_packages
from tests.harness.mesh import cli, running_mesh
from tests.harness.stores import wait_until
from tests.scenarios.edge.test_mcp import counting
from tests.scenarios.policy.test_approvals import Office, office_of

pytestmark = [pytest.mark.typescript, pytest.mark.timeout(1200)]
HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples" / "typescript"


@pytest.fixture(scope="module")
def programs() -> Path:
    """A folder with the clients, the steps and the examples."""
    place = install_packages(EXAMPLES, "typescript")
    for file in (*HERE.glob("*.ts"), *EXAMPLES.glob("*.ts")):
        shutil.copy(file, place)
    return place


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    folder = tmp_path_factory.mktemp("typescript")
    with running_mesh(folder / "state") as mesh, office_of(mesh, folder) as office:
        cli("tools", "register", "examples/packs/jobkit/manifests", state=mesh.state)
        yield office


@contextmanager
def program(office: Office, programs: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program with the caller's token, and see it end well."""
    environment = {**os.environ, "TOOLMESH_URL": office.mesh.url, "TOOLMESH_TOKEN": office.token}
    command = [str(install_node()), *words]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=programs, env=environment, text=True, **streams) as process:  # type: ignore[call-overload]
        try:
            yield process
            process.communicate(timeout=300)
        finally:
            process.kill()
    assert process.returncode == 0


def lines_of(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    return map(json.loads, process.stdout)


@pytest.mark.parametrize("how", ["session", "stateless"])
def test_the_client_lists_and_calls(office: Office, programs: Path, how: str) -> None:
    with program(office, programs, "steps.ts", how, "list") as listing:
        assert "core__echo" in next(lines_of(listing))["tools"]
    with program(office, programs, "steps.ts", how, "call") as calling:
        answered, refused = (line["result"] for line in lines_of(calling))
    assert answered["structuredContent"] == {"text": "hi"}
    assert not answered.get("isError")
    assert refused["isError"]
    assert refused["_meta"]["dev.toolmesh/error"]["reason"] == "ARGUMENTS_INVALID"


@pytest.mark.parametrize("how", ["session", "stateless"])
def test_the_client_hears_of_progress(office: Office, programs: Path, how: str) -> None:
    with program(office, programs, "steps.ts", how, "progress") as process:
        (seen,) = lines_of(process)
    assert not seen["result"].get("isError")
    reports = [progress for progress, _ in seen["reports"]]
    assert reports
    assert reports == sorted(set(reports))


@pytest.mark.parametrize("how", ["session", "stateless"])
def test_a_call_that_the_client_cancels_ends(office: Office, programs: Path, how: str) -> None:
    with program(office, programs, "steps.ts", how, "cancel") as process:
        assert next(lines_of(process)) == {"cancelled": True}
        wait_until(lambda: not counting(office.mesh, office.token), "the end of the invocation", 120)
        assert process.stdin is not None
        process.stdin.write("ended\n")


def test_the_client_waits_for_an_approval_as_a_task(office: Office, programs: Path) -> None:
    """Only the client of 2025-11-25 knows tasks."""
    report = f"typescript-{new_id()}"
    office.write(report)
    with program(office, programs, "steps.ts", "session", "approval", report) as process:
        lines = lines_of(process)
        assert next(lines)["type"] == "taskCreated"
        (ticket,) = [word for word in next(lines)["status"].split() if word.startswith("tickets/")]
        assert office.approve(ticket) is None
        *_, last = lines
    # The report was still there, so nothing ran before.
    assert (last["type"], last["result"]["structuredContent"]) == ("result", {"removed": True})


def test_the_examples_run(office: Office, programs: Path) -> None:
    with program(office, programs, "fetch.ts") as process:
        assert process.stdout is not None
        answered, refused = process.stdout
    assert "hello from TypeScript" in answered
    assert refused.startswith("ARGUMENTS_INVALID")
    with program(office, programs, "mcp_client.ts") as process:
        assert process.stdout is not None
        *listed, answered = process.stdout
    assert "hello" in answered
    assert any(line.startswith("core__echo") for line in listed)
