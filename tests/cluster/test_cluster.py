"""A real one-node Kubernetes: pods, names, policies, metrics, Pod Security, user namespaces; and nothing after its end.

The cluster is started once for the module. The last test ends it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.cluster.addresses import NODE
from deploy.cluster.build.artifacts import user_cache
from deploy.cluster.build.go_programs import KUBERNETES
from deploy.cluster.node.control_groups import group_name
from deploy.cluster.state_folder import read_record
from localmesh.deploy.place_profiles import place_profiles
from tests.cluster.machine import MachineState, groups_named, processes_of, read_machine
from tests.cluster.running_cluster import REPOSITORY, RESTRICTED, RunningCluster, namespace, pod, pod_spec
from tests.cluster.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600)]
SPACE, BASELINE = "probes", "sandboxes"
WEB = f"http://web.{SPACE}.svc.cluster.local"
EXECUTOR_PROFILE = {"type": "Localhost", "localhostProfile": "toolmesh-executor-v3.json"}


@pytest.fixture(scope="module")
def before() -> MachineState:
    return read_machine()


@pytest.fixture(scope="module")
def cluster(before: MachineState, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    cluster = RunningCluster(tmp_path_factory.mktemp("cluster-test"))
    started = cluster.command("up")
    assert started.returncode == 0, started.stdout + started.stderr
    yield cluster
    cluster.command("down")


@pytest.fixture(scope="module")
def web(cluster: RunningCluster) -> RunningCluster:
    """Two pods behind a service, and two that call it."""
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": pod_spec()}
    cluster.apply(namespace(SPACE))
    cluster.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web", "namespace": SPACE},
            "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web", "namespace": SPACE},
            "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": 8080}]},
        },
        pod(SPACE, "friend", pod_spec()),
        pod(SPACE, "stranger", pod_spec()),
    )
    cluster.wait(f"--namespace={SPACE}", "rollout", "status", "deployment/web")
    cluster.wait(f"--namespace={SPACE}", "wait", "--for=condition=Ready", "pod/friend", "pod/stranger")
    return cluster


def test_the_node_is_ready_and_of_the_pinned_version(cluster: RunningCluster) -> None:
    status = cluster.get("node", NODE)["status"]
    assert {each["type"]: each["status"] for each in status["conditions"]}["Ready"] == "True"
    assert status["nodeInfo"]["kubeletVersion"] == f"v{KUBERNETES}"


def test_a_second_start_leaves_the_running_cluster_as_it_is(cluster: RunningCluster) -> None:
    record = read_record(cluster.state)
    assert cluster.command("up").returncode == 0
    assert read_record(cluster.state) == record


def test_two_pods_of_a_deployment_are_ready(web: RunningCluster) -> None:
    assert web.get(f"--namespace={SPACE}", "deployment", "web")["status"]["readyReplicas"] == 2


def test_a_pod_finds_a_service_by_its_name(web: RunningCluster) -> None:
    address = web.get(f"--namespace={SPACE}", "service", "web")["spec"]["clusterIP"]
    resolved = web.probe(SPACE, "friend", "resolve", f"web.{SPACE}.svc.cluster.local")
    assert (resolved.stdout.strip(), resolved.returncode) == (address, 0), resolved.stderr
    assert web.probe(SPACE, "friend", "fetch", WEB).stdout.startswith("web-")
    assert web.probe(SPACE, "friend", "resolve", f"nothing.{SPACE}.svc.cluster.local").returncode == 1


def test_a_network_policy_refuses_strangers(web: RunningCluster) -> None:
    assert web.probe(SPACE, "stranger", "fetch", WEB).returncode == 0
    web.apply(
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "web", "namespace": SPACE},
            "spec": {
                "podSelector": {"matchLabels": {"app": "web"}},
                "policyTypes": ["Ingress"],
                "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "friend"}}}]}],
            },
        }
    )
    wait_until(lambda: web.probe(SPACE, "stranger", "fetch", WEB).returncode == 1)
    assert web.probe(SPACE, "friend", "fetch", WEB).returncode == 0


def test_metrics_of_node_and_pods_are_shown(web: RunningCluster) -> None:
    wait_until(lambda: web.kubectl("top", "node", NODE).returncode == 0)
    wait_until(lambda: "friend" in web.kubectl("top", "pods", f"--namespace={SPACE}").stdout)


def test_pod_security_refuses_a_privileged_pod(web: RunningCluster) -> None:
    statuses = {}
    for name, context in (("privileged", {"privileged": True}), ("restricted", RESTRICTED)):
        text = json.dumps(pod(SPACE, name, pod_spec(context)))
        statuses[name] = web.kubectl("create", "--dry-run=server", "--filename=-", given=text).returncode
    assert statuses == {"privileged": 1, "restricted": 0}


@pytest.fixture(scope="module")
def sandboxes(cluster: RunningCluster) -> RunningCluster:
    """Two pods with user namespaces: one with the executor's profile, one with the default one."""
    # What the mesh's DaemonSet does on a cluster with the mesh.
    profiles = cluster.state.kubelet / "seccomp"
    profiles.mkdir(exist_ok=True)
    place_profiles(REPOSITORY / "deploy" / "seccomp", profiles)
    cluster.apply(namespace(BASELINE, "baseline"))
    own = {**RESTRICTED, "runAsUser": 10001, "procMount": "Unmasked"}
    cluster.apply(
        pod(BASELINE, "executor", pod_spec({**own, "seccompProfile": EXECUTOR_PROFILE}, hostUsers=False)),
        pod(BASELINE, "default", pod_spec(own, hostUsers=False)),
    )
    cluster.wait(f"--namespace={BASELINE}", "wait", "--for=condition=Ready", "pod/executor", "pod/default")
    return cluster


def test_a_pod_with_a_user_namespace_is_no_user_of_the_machine(sandboxes: RunningCluster) -> None:
    inside, outside, _ = sandboxes.probe(BASELINE, "executor", "read", "/proc/self/uid_map").stdout.split()
    assert int(inside) == 0
    assert int(outside) >= 65536


def test_the_executors_profile_permits_sandboxes_and_the_default_one_does_not(sandboxes: RunningCluster) -> None:
    question = ("namespace", "read /proc/self/uid_map")
    assert sandboxes.probe(BASELINE, "executor", *question).stdout.split() == ["0", "10001", "1"]
    assert sandboxes.probe(BASELINE, "default", *question).returncode == 1


def test_images_are_imported_and_commands_run_inside(cluster: RunningCluster) -> None:
    record = read_record(cluster.state)
    assert record is not None
    assert Path(record.cache).parent == user_cache()
    assert cluster.command("import", str(Path(record.cache) / "images" / "probe.tar")).returncode == 0
    assert cluster.command("exec", "--", "hostname").stdout.strip() == NODE


def test_every_part_has_a_log(cluster: RunningCluster) -> None:
    parts = {"etcd", "containerd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}
    parts |= {"kubelet", "kube-proxy", "netpol", "node"}
    assert {path.stem for path in cluster.state.log.iterdir()} == parts


def test_the_end_leaves_nothing_but_logs(cluster: RunningCluster, before: MachineState) -> None:
    ended = cluster.command("down")
    assert ended.returncode == 0, ended.stderr
    wait_until(lambda: processes_of(cluster.state.root) == [])
    assert groups_named(group_name(cluster.state.root)) == []
    assert read_machine() == before
    assert [path.name for path in cluster.state.root.iterdir()] == ["log"]
