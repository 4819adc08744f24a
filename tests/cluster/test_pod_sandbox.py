"""Tools that run as pods on a real cluster: through the mesh, at their deadline, and when the executor is killed."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from toolmesh_sdk import Client
from toolmesh_sdk.errors import ToolmeshError

from tests.cluster.deployed_mesh import DeployedMesh
from tests.cluster.running_cluster import REPOSITORY
from tests.cluster.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600)]
TOOLS = "--namespace=toolmesh-tools"
PACKS = REPOSITORY / "examples" / "packs"
# How the executor has its pods, with the name of the sandbox in the records.
CLAIMS = "agent-sandbox"
WAYS: dict[str, dict[str, str]] = {
    "direct": {"TOOLMESH_POD_CLAIMS": "off"},
    "gvisor": {"TOOLMESH_POD_CLAIMS": "off", "TOOLMESH_POD_RUNTIME_CLASS": "gvisor"},
    CLAIMS: {"TOOLMESH_POD_CLAIMS": "required"},
}
LARGE = {"below": 100_000_000, "step": 1_000_000}


def machine_tool(pack: str, name: str, folder: Path, **execution: Any) -> None:
    """Writes the manifest of an example that demands the tier `machine`."""
    manifest = json.loads((PACKS / pack / "manifests" / f"{name}.json").read_text())
    manifest["tool_id"] = f"machine_{name}"
    manifest["interface"]["safety"]["sandbox_tier"] = "machine"
    manifest["execution"] |= execution
    (folder / f"{name}.json").write_text(json.dumps(manifest))


@pytest.fixture(scope="module", params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    """How the executor has its pods."""
    return str(request.param)


@pytest.fixture(scope="module")
def sandbox(way: str) -> str:
    """The name of the sandbox in the records."""
    return "machine/pod-gvisor" if way == "gvisor" else "machine/pod"


@pytest.fixture(scope="module")
def pods(mesh: DeployedMesh, token: str, way: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedMesh]:
    """The mesh, with an executor that runs tools as pods."""
    if way == CLAIMS:
        added = mesh.cluster.command("add-agent-sandbox")
        assert added.returncode == 0, added.stderr
    folder = tmp_path_factory.mktemp("manifests")
    machine_tool("textkit", "word_statistics", folder)
    machine_tool("jobkit", "count_primes", folder, timeout_class="standard", timeout_default="4s", checkpoint={})
    with mesh.tool_pods(**WAYS[way]):
        # The executor announces the tier once its probe ran.
        wait_until(lambda: _registers(mesh, token, folder))
        yield mesh


def _registers(mesh: DeployedMesh, token: str, folder: Path) -> bool:
    try:
        mesh.call(token, "tools", "register", str(folder))
    except AssertionError:
        return False
    return True


def tool_pods(mesh: DeployedMesh) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = mesh.cluster.get(TOOLS, "pods")["items"]
    return found


def workers(mesh: DeployedMesh) -> list[dict[str, Any]]:
    """Returns the pods that may serve calls: not one of an executor that was replaced, nor one that has ended."""
    living = {each["metadata"]["name"] for each in mesh.pods("executor")}
    return [
        pod
        for pod in tool_pods(mesh)
        if pod["metadata"]["labels"]["toolmesh.io/executor"] in living
        and "deletionTimestamp" not in pod["metadata"]
        and pod["status"]["phase"] == "Running"
    ]


def claims(mesh: DeployedMesh) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = mesh.cluster.get(TOOLS, "sandboxclaims")["items"]
    return found


def leases(mesh: DeployedMesh) -> set[str]:
    return {each["metadata"]["name"] for each in mesh.cluster.get(TOOLS, "leases")["items"]}


@contextmanager
def client(mesh: DeployedMesh, token: str) -> Iterator[Client]:
    with mesh.forward("service/edge", 8080) as port, Client(f"http://localhost:{port}", token=token) as made:
        yield made


def test_a_tool_runs_in_a_pod_and_leaves_nothing(pods: DeployedMesh, token: str, way: str, sandbox: str) -> None:
    with client(pods, token) as caller:
        for _ in range(3):
            result = caller.call("samples.machine_word_statistics", {"text": "to be or not to be"}, timeout=60)
            assert result.content["words"] == 6
        [pod] = workers(pods)
    assert pod["metadata"]["ownerReferences"][0]["kind"] == ("Sandbox" if way == CLAIMS else "Lease")
    assert pod["spec"].get("runtimeClassName") == ("gvisor" if way == "gvisor" else None)
    if way == CLAIMS:
        assert pod["metadata"]["name"] in {claim["metadata"]["name"] for claim in claims(pods)}
    record = pods.call(token, "audit", "tail", "--invocation", result.invocation_id, "--json")
    assert f'"{sandbox} ' in record
    # A worker that is idle for a minute is ended, and its pod with it.
    wait_until(lambda: tool_pods(pods) == [])


def test_a_tool_is_killed_at_its_deadline(pods: DeployedMesh, token: str) -> None:
    with client(pods, token) as caller, pytest.raises(ToolmeshError) as caught:
        caller.call("samples.machine_count_primes", LARGE, timeout=60)
    assert caught.value.reason.name == "TOOL_TIMEOUT"
    wait_until(lambda: tool_pods(pods) == [])


def test_pods_of_a_killed_executor_are_removed(pods: DeployedMesh, token: str) -> None:
    with client(pods, token) as caller:

        def call() -> None:
            with suppress(ToolmeshError):
                caller.call("samples.machine_count_primes", LARGE, timeout=60, idempotency_key=uuid.uuid4().hex)

        calling = threading.Thread(target=call)
        calling.start()
        wait_until(lambda: len(tool_pods(pods)) == 1)
        name = tool_pods(pods)[0]["metadata"]["labels"]["toolmesh.io/executor"]
        pods.kubectl("executor", "delete", "pod", name, "--grace-period=0", "--force")
        wait_until(lambda: tool_pods(pods) == [])
        # The lease of an executor that is not renewed goes after its time.
        wait_until(lambda: name not in leases(pods))
        calling.join()
    pods.wait_for("executor")


@pytest.mark.parametrize("way", [CLAIMS], indirect=True)
def test_nothing_of_agent_sandbox_is_left_but_the_objects_of_living_executors(pods: DeployedMesh) -> None:
    wait_until(lambda: claims(pods) == [])
    for kind in ("sandboxtemplates", "sandboxwarmpools"):
        found = pods.cluster.get(TOOLS, kind)["items"]
        assert {each["metadata"]["ownerReferences"][0]["name"] for each in found} <= leases(pods)


def test_the_log_verifies(pods: DeployedMesh, token: str, sandbox: str) -> None:
    assert f'"{sandbox} ' in pods.call(token, "audit", "tail", "--json")
    pods.call(token, "audit", "verify")
