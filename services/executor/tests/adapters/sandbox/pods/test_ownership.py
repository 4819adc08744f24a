"""Pods of executors that are gone are removed, and no others."""

from __future__ import annotations

import pytest

from libs.common.telemetry.log import Log
from services.executor.adapters.sandbox.pods import ownership
from services.executor.adapters.sandbox.pods.kubernetes_api import KubernetesPodApi
from services.executor.adapters.sandbox.pods.ownership import PodOwnership, name_of
from services.executor.adapters.sandbox.pods.pod_api import LeaseState
from services.executor.adapters.sandbox.pods.pod_manifest import describe_pod
from services.executor.adapters.sandbox.port import Plan
from services.executor.tests.adapters.sandbox.pods.conftest import CONFIG
from services.executor.tests.pod_cluster import PodCluster

OTHER = LeaseState("other", "uid-of-another-time", "")


async def make_pod(api: KubernetesPodApi, name: str, owner: LeaseState) -> None:
    await api.create_pod(describe_pod(CONFIG, name, owner.name, owner, Plan(("/bin/true",)), ["/packs"], 0))


async def test_pods_without_a_lease_are_removed_and_others_stay(
    api: KubernetesPodApi, cluster: PodCluster, quiet: Log
) -> None:
    mine, theirs = PodOwnership(api, "mine", quiet), PodOwnership(api, "theirs", quiet)
    await make_pod(api, "one", await mine.lease())
    await make_pod(api, "two", await theirs.lease())
    await make_pod(api, "orphan", OTHER)
    await mine.sweep()
    assert cluster.pods.keys() == {"one", "two"}


async def test_a_new_process_of_the_same_name_removes_what_the_old_one_left(
    api: KubernetesPodApi, cluster: PodCluster, quiet: Log
) -> None:
    await make_pod(api, "left", await PodOwnership(api, "same", quiet).lease())
    again = PodOwnership(api, "same", quiet)
    await make_pod(api, "new", await again.lease())
    await again.sweep()
    assert cluster.pods.keys() == {"new"}


async def test_a_lease_that_is_not_renewed_is_deleted_after_its_time(
    api: KubernetesPodApi, cluster: PodCluster, quiet: Log
) -> None:
    seconds = 0.0
    names = ("living", "dead", "sweeping")
    living, dead, sweeping = (PodOwnership(api, name, quiet, clock=lambda: seconds) for name in names)
    for each in (living, dead, sweeping):
        await make_pod(api, each.name, await each.lease())
    for _ in range(4):
        await sweeping.sweep()
        assert "dead" in cluster.pods
        seconds += ownership.LEASE_SECONDS / 4
        await living.renew()
    await sweeping.sweep()
    assert cluster.pods.keys() == {"living", "sweeping"}
    assert cluster.leases.keys() == {"living", "sweeping"}


async def test_an_executor_whose_lease_was_deleted_gets_another(
    api: KubernetesPodApi, cluster: PodCluster, quiet: Log
) -> None:
    mine = PodOwnership(api, "mine", quiet)
    before = await mine.lease()
    cluster.drop_lease("mine")
    await mine.renew()
    assert (await mine.lease()).uid != before.uid


async def test_a_released_lease_takes_its_pods_with_it(api: KubernetesPodApi, cluster: PodCluster, quiet: Log) -> None:
    mine = PodOwnership(api, "mine", quiet)
    await make_pod(api, "one", await mine.lease())
    await mine.release()
    assert (cluster.pods, cluster.leases) == ({}, {})


@pytest.mark.parametrize(
    ("instance", "name"),
    [("executor-7f_A.b", "executor-7f-a-b"), ("___", "executor"), ("x" * 80, "x" * 52), ("host-1", "host-1")],
)
def test_names_are_those_of_objects(instance: str, name: str) -> None:
    assert name_of(instance) == name
