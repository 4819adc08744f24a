"""The whole mesh on a real cluster: first call, network policies, Pod Security, rolling updates and kills under load.

The cluster is started once for the module, from the images and manifests of this checkout (`make images`). The last
test ends it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy.cluster.node.control_groups import group_name
from deploy.cluster.up import IMAGES
from tests.cluster.deployed_mesh import SERVICES, UPGRADE_ORDER, DeployedMesh, RunningLoad, namespace_of
from tests.cluster.machine import MachineState, groups_named, processes_of, read_machine
from tests.cluster.running_cluster import REPOSITORY, RunningCluster, namespace, pod, pod_spec

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(7200)]
PATIENCE_SECONDS = 600.0
KILLS = 20
STRANGERS = "strangers"


@pytest.fixture(scope="module")
def before() -> MachineState:
    return read_machine()


@pytest.fixture(scope="module")
def mesh(before: MachineState, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedMesh]:
    assert list((REPOSITORY / IMAGES).glob("*.tar")), "there are no images: make images"
    cluster = RunningCluster(tmp_path_factory.mktemp("cluster-mesh"), REPOSITORY)
    started = cluster.command("up")
    assert started.returncode == 0, started.stdout + started.stderr
    yield DeployedMesh(cluster, tmp_path_factory.mktemp("operator"))
    cluster.command("down")


@pytest.fixture(scope="module")
def token(mesh: DeployedMesh) -> str:
    return mesh.mint()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.5)


def test_the_first_call_is_answered_through_the_edge_and_recorded(mesh: DeployedMesh, token: str) -> None:
    assert "hello" in mesh.call(token, "call", "echo", '{"text": "hello"}')
    assert "core.echo" in mesh.call(token, "audit", "tail")


def test_a_tool_runs_in_a_sandbox_of_the_executors_pod(mesh: DeployedMesh, token: str) -> None:
    mesh.call(token, "tools", "register", str(REPOSITORY / "examples" / "packs" / "textkit" / "manifests"))
    printed = mesh.call(token, "call", "samples.word_statistics", '{"text": "to be or not to be"}')
    assert '"words"' in printed


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
def strangers(mesh: DeployedMesh) -> DeployedMesh:
    """A pod outside, one inside without a role, and one with the role of an operator."""
    operator = pod("toolmesh", "operator", pod_spec())
    operator["metadata"]["labels"] = {"toolmesh.io/peer": "operator"}
    mesh.cluster.apply(namespace(STRANGERS))
    mesh.cluster.apply(pod(STRANGERS, "stranger", pod_spec()), pod("toolmesh", "stranger", pod_spec()), operator)
    for space, name in ((STRANGERS, "stranger"), ("toolmesh", "stranger"), ("toolmesh", "operator")):
        # Not its readiness: the kubelet's probes may be refused like any other connection.
        mesh.cluster.wait(f"--namespace={space}", "wait", "--for=jsonpath={.status.phase}=Running", f"pod/{name}")
    return mesh


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


@pytest.fixture(scope="module")
def pairs(mesh: DeployedMesh) -> DeployedMesh:
    """Two pods of each service, so that one can be lost."""
    for service in UPGRADE_ORDER:
        mesh.kubectl(service, "patch", "hpa", service, "--patch", '{"spec": {"minReplicas": 2}}')
    wait_until(lambda: all(len(mesh.pods(service)) >= 2 for service in UPGRADE_ORDER))
    mesh.wait_for(*UPGRADE_ORDER)
    return mesh


def wait_for_calls(load: RunningLoad, more: int = 20) -> None:
    """Waits until further calls have ended, so that the load is known to go on."""
    goal = len(load.read().invocations) + more
    wait_until(lambda: len(load.read().invocations) >= goal or load.read().failures != [])


def require_evidence(mesh: DeployedMesh, token: str, load: RunningLoad) -> None:
    calls = load.read()
    assert calls.failures == []
    assert len(set(calls.invocations)) == len(calls.invocations)
    mesh.call(token, "audit", "verify")


def test_a_rolling_update_of_each_service_fails_no_call(mesh: DeployedMesh, token: str) -> None:
    with mesh.steady_load(token) as load:
        wait_for_calls(load)
        for service in UPGRADE_ORDER:
            old = {each["metadata"]["name"] for each in mesh.pods(service)}
            mesh.kubectl(service, "rollout", "restart", f"deployment/{service}")
            mesh.wait_for(service)
            wait_until(lambda old=old, service=service: old.isdisjoint(names(mesh, service)))  # type: ignore[misc]
            wait_for_calls(load)
            assert load.read().failures == [], service
    require_evidence(mesh, token, load)


def names(mesh: DeployedMesh, service: str) -> set[str]:
    selector = f"--selector=app.kubernetes.io/name={service}"
    found = mesh.cluster.get(f"--namespace={namespace_of(service)}", "pods", selector)["items"]
    return {each["metadata"]["name"] for each in found}


def test_pods_killed_at_random_fail_no_call(pairs: DeployedMesh, token: str) -> None:
    chosen = random.Random(32)
    with pairs.steady_load(token) as load:
        wait_for_calls(load)
        for _ in range(KILLS):
            service = chosen.choice(UPGRADE_ORDER)
            victim = chosen.choice(pairs.pods(service))["metadata"]["name"]
            pairs.kubectl(service, "delete", f"pod/{victim}", "--grace-period=0", "--force", "--wait=false")
            wait_for_calls(load, 5)
            pairs.wait_for(service)
            assert load.read().failures == [], (service, victim)
    require_evidence(pairs, token, load)


def test_the_end_leaves_nothing_but_logs(mesh: DeployedMesh, before: MachineState) -> None:
    state: Path = mesh.cluster.state.root
    ended = mesh.cluster.command("down")
    assert ended.returncode == 0, ended.stderr
    wait_until(lambda: processes_of(state) == [])
    assert groups_named(group_name(state)) == []
    assert read_machine() == before
    assert [path.name for path in state.iterdir()] == ["log"]
