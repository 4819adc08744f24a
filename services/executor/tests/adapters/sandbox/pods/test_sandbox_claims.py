"""Pods through claims of agent-sandbox, against a stand-in for the API server and the controller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from libs.common.telemetry.log import Log
from services.executor.adapters.sandbox.pods import sandbox_claims
from services.executor.adapters.sandbox.pods.kubernetes_api import KubernetesPodApi
from services.executor.adapters.sandbox.pods.ownership import PodOwnership
from services.executor.adapters.sandbox.pods.pod_api import ClusterError, LeaseState
from services.executor.adapters.sandbox.pods.pod_manifest import describe_pod
from services.executor.adapters.sandbox.pods.sandbox import PodSandbox
from services.executor.adapters.sandbox.pods.sandbox_claims import ClaimPodApi, describe_template, pool_name
from services.executor.adapters.sandbox.port import ExitKind, Plan
from services.executor.adapters.sandbox.rootfs import interpreter_path
from services.executor.doctor import OK, check_pods
from services.executor.tests.adapters.sandbox.pods.conftest import CONFIG
from services.executor.tests.pod_cluster import NAMESPACE, PodCluster


@pytest.fixture
async def claims(cluster: PodCluster) -> AsyncIterator[ClaimPodApi]:
    cluster.install_agent_sandbox()
    made = ClaimPodApi(KubernetesPodApi(NAMESPACE, cluster.kubeconfig), NAMESPACE, required=True)
    yield made
    await made.close()


PLAN = Plan(("/bin/true",))


def pod(name: str, lease: LeaseState, plan: Plan = PLAN) -> dict[str, Any]:
    return describe_pod(CONFIG, name, lease.name, lease, plan, ["/packs"], 0)


def objects(cluster: PodCluster, kind: str) -> set[str]:
    assert cluster.extensions is not None
    return set(cluster.extensions[kind])


async def test_a_claimed_pod_is_created_read_and_deleted(claims: ClaimPodApi, cluster: PodCluster) -> None:
    lease = await claims.create_lease("mine")
    described = pod("tool-1", lease)
    await claims.create_pod(described)
    state = await claims.read_pod("tool-1")
    assert state is not None
    assert (state.phase, state.owner) == ("Pending", lease.uid)
    state = await claims.read_pod("tool-1")
    assert state is not None
    assert state.containers["tool"].running
    [created] = cluster.created
    assert created["spec"] == described["spec"]
    assert created["metadata"]["labels"] == described["metadata"]["labels"]
    await claims.delete_pod("tool-1")
    await claims.delete_pod("tool-1")
    assert await claims.read_pod("tool-1") is None
    assert (cluster.pods, objects(cluster, "sandboxclaims")) == ({}, set())


async def test_pods_of_one_description_share_a_template(claims: ClaimPodApi, cluster: PodCluster) -> None:
    lease = await claims.create_lease("mine")
    for number in range(2):
        await claims.create_pod(pod(f"tool-{number}", lease))
    await claims.create_pod(pod("tool-2", lease, Plan(("/bin/true",), memory_bytes=99 << 20)))
    templates = objects(cluster, "sandboxtemplates")
    assert len(templates) == 2
    assert templates == objects(cluster, "sandboxwarmpools")


def test_templates_are_those_of_one_lease() -> None:
    one, other = LeaseState("mine", "uid-1", ""), LeaseState("mine", "uid-2", "")
    assert pool_name(pod("a", one)) == pool_name(pod("b", one))
    assert pool_name(pod("a", one)) != pool_name(pod("a", other))


def test_the_controller_adds_no_policy_that_lets_pods_out() -> None:
    template = describe_template(pod("a", LeaseState("mine", "uid", "")), "one")
    assert template["spec"]["networkPolicyManagement"] == "Unmanaged"


async def test_all_of_an_executor_goes_with_its_lease(claims: ClaimPodApi, cluster: PodCluster, quiet: Log) -> None:
    mine = PodOwnership(claims, "mine", quiet)
    await claims.create_pod(pod("tool-1", await mine.lease()))
    await claims.read_pod("tool-1")
    assert "tool-1" in cluster.pods
    await mine.release()
    assert cluster.pods == {}
    assert {kind: found for kind, found in (cluster.extensions or {}).items() if found} == {}


async def test_orphans_are_removed_by_their_claims_and_others_stay(
    claims: ClaimPodApi, cluster: PodCluster, quiet: Log
) -> None:
    mine, theirs = PodOwnership(claims, "mine", quiet), PodOwnership(claims, "theirs", quiet)
    for name, lease in (
        ("one", await mine.lease()),
        ("two", await theirs.lease()),
        ("orphan", LeaseState("x", "gone", "")),
    ):
        await claims.create_pod(pod(name, lease))
        await claims.read_pod(name)
    await mine.sweep()
    assert cluster.pods.keys() == objects(cluster, "sandboxclaims") == {"one", "two"}


async def test_an_executor_without_claims_leaves_claimed_pods_alone(
    claims: ClaimPodApi, api: KubernetesPodApi, cluster: PodCluster, quiet: Log
) -> None:
    await claims.create_pod(pod("tool-1", await PodOwnership(claims, "mine", quiet).lease()))
    await claims.read_pod("tool-1")
    await PodOwnership(api, "other", quiet).sweep()
    assert cluster.pods.keys() == {"tool-1"}


async def test_pods_that_were_created_without_a_claim_are_deleted_too(
    claims: ClaimPodApi, api: KubernetesPodApi, cluster: PodCluster
) -> None:
    await api.create_pod(pod("earlier", LeaseState("mine", "uid", "")))
    assert [state.name for state in await claims.list_pods()] == ["earlier"]
    await claims.delete_pod("earlier")
    assert cluster.pods == {}


async def test_without_agent_sandbox_pods_are_created_directly(api: KubernetesPodApi, cluster: PodCluster) -> None:
    preferring = ClaimPodApi(api, NAMESPACE, required=False)
    assert not await preferring.uses_claims()
    await preferring.create_pod(pod("tool-1", LeaseState("mine", "uid", "")))
    assert cluster.pods.keys() == {"tool-1"}
    assert [state.name for state in await preferring.list_pods()] == ["tool-1"]
    await preferring.delete_pod("tool-1")
    assert await preferring.read_pod("tool-1") is None


async def test_required_claims_are_an_error_until_they_are_installed(
    api: KubernetesPodApi, cluster: PodCluster
) -> None:
    requiring = ClaimPodApi(api, NAMESPACE, required=True)
    with pytest.raises(ClusterError):
        await requiring.create_pod(pod("tool-1", LeaseState("mine", "uid", "")))
    assert cluster.pods == {}
    cluster.install_agent_sandbox()
    assert await requiring.uses_claims()


async def test_objects_without_a_controller_are_an_error(
    claims: ClaimPodApi, cluster: PodCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox_claims, "_POOL_SECONDS", 0.3)
    cluster.has_controller = False
    with pytest.raises(ClusterError):
        await claims.create_pod(pod("tool-1", await claims.create_lease("mine")))
    assert objects(cluster, "sandboxclaims") == set()


async def test_a_process_runs_in_a_claimed_pod_and_leaves_nothing(
    claims: ClaimPodApi, cluster: PodCluster, quiet: Log
) -> None:
    pods = PodSandbox(claims, CONFIG, "executor-test", quiet)
    await pods.probe()
    assert pods.unavailable_reason() == ""
    process = await pods.start(Plan((interpreter_path(), "-c", "import sys; sys.exit(7)")))
    report = await process.wait()
    assert (report.kind, report.code) == (ExitKind.EXITED, 7)
    await process.kill()
    await pods.close()
    assert (cluster.pods, cluster.leases) == ({}, {})
    assert objects(cluster, "sandboxclaims") | objects(cluster, "sandboxtemplates") == set()


@pytest.mark.parametrize(
    ("installed", "setting", "way"),
    [(True, "", "by a SandboxClaim"), (True, "off", "without a SandboxClaim"), (False, "", "without a SandboxClaim")],
)
async def test_doctor_says_how_pods_are_made(
    cluster: PodCluster, monkeypatch: pytest.MonkeyPatch, installed: bool, setting: str, way: str
) -> None:
    if installed:
        cluster.install_agent_sandbox()
    settings = {"NAMESPACE": NAMESPACE, "IMAGE": CONFIG.image, "KUBECONFIG": str(cluster.kubeconfig), "CLAIMS": setting}
    for name, value in settings.items():
        monkeypatch.setenv(f"TOOLMESH_POD_{name}", value)
    check = await asyncio.to_thread(check_pods)
    assert (check.status, check.detail.rpartition(", made ")[2]) == (OK, way)
