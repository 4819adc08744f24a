"""What separates pods: Pod Security, network policies, and the sandboxes of tools in each kind of pod."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.deployed_mesh import SERVICES, DeployedMesh
from tests.cluster.executor_pod import ExecutorPod
from tests.cluster.running_cluster import namespace, pod, pod_spec

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600)]
STRANGERS = "strangers"


def test_pod_security_admits_all_but_the_executor_as_restricted(mesh: DeployedMesh) -> None:
    warnings = {}
    for space in ("toolmesh", "toolmesh-executor"):
        label = "pod-security.kubernetes.io/enforce=restricted"
        done = mesh.cluster.kubectl("label", "--overwrite", "--dry-run=server", f"namespace/{space}", label)
        assert done.returncode == 0, done.stderr
        warnings[space] = [line for line in done.stderr.splitlines() if line.startswith("Warning:")]
    assert warnings["toolmesh"] == []
    assert any("executor" in line for line in warnings["toolmesh-executor"])


@pytest.fixture(scope="module")
def strangers(mesh: DeployedMesh) -> Iterator[DeployedMesh]:
    """A pod outside, one inside without a role, and one with the role of an operator."""
    operator = pod("toolmesh", "operator", pod_spec())
    operator["metadata"]["labels"] = {"toolmesh.io/peer": "operator"}
    mesh.cluster.apply(namespace(STRANGERS))
    mesh.cluster.apply(pod(STRANGERS, "stranger", pod_spec()), pod("toolmesh", "stranger", pod_spec()), operator)
    for space, name in ((STRANGERS, "stranger"), ("toolmesh", "stranger"), ("toolmesh", "operator")):
        # Not its readiness: the kubelet's probes may be refused like any other connection.
        mesh.cluster.wait(f"--namespace={space}", "wait", "--for=jsonpath={.status.phase}=Running", f"pod/{name}")
    yield mesh
    mesh.cluster.kubectl("--namespace=toolmesh", "delete", "pod", "stranger", "operator")
    mesh.cluster.kubectl("delete", "namespace", STRANGERS)


def connects(mesh: DeployedMesh, space: str, name: str, address: str, port: int) -> bool:
    return mesh.cluster.probe(space, name, "connect", f"{address}:{port}").returncode == 0


def doors(mesh: DeployedMesh) -> dict[str, tuple[str, int]]:
    """Returns the address and port of every server behind the edge."""
    ports = [(service, port) for service in SERVICES for port in (8443, 9090)]
    ports += [("envoy", 9901), ("postgres", 5432), ("valkey", 6379)]
    return {f"{name}:{port}": (str(mesh.pods(name)[0]["status"]["podIP"]), port) for name, port in ports}


def test_strangers_reach_the_edge_and_nothing_behind_it(strangers: DeployedMesh) -> None:
    edge = str(strangers.pods("envoy")[0]["status"]["podIP"])
    assert connects(strangers, STRANGERS, "stranger", edge, 8080)
    found = doors(strangers)
    for space in (STRANGERS, "toolmesh"):
        assert [name for name, door in found.items() if connects(strangers, space, "stranger", *door)] == []


def test_an_operator_reaches_the_services_that_admit_it_and_no_store(strangers: DeployedMesh) -> None:
    found = doors(strangers)
    reached = {name for name, door in found.items() if connects(strangers, "toolmesh", "operator", *door)}
    assert reached <= {f"{service}:8443" for service in SERVICES}
    assert {"authz:8443", "registry:8443", "audit:8443"} <= reached


@pytest.fixture(params=["own", "restricted", "privileged"])
def executor_pod(mesh: DeployedMesh, request: pytest.FixtureRequest) -> Iterator[tuple[str, ExecutorPod]]:
    made = ExecutorPod(mesh, request.param)
    made.start()
    yield request.param, made
    made.end()


def test_no_escape_succeeds_in_the_executors_pod(executor_pod: tuple[str, ExecutorPod]) -> None:
    """Under `restricted` gVisor alone starts."""
    place, made = executor_pod
    outcome = made.run_escapes()
    assert outcome.failed == []
    sandboxes = {"gvisor"} if place == "restricted" else {"bubblewrap", "gvisor"}
    assert {name for name, count in outcome.passed.items() if name and count} == sandboxes
    assert sandboxes.isdisjoint(outcome.skipped)
