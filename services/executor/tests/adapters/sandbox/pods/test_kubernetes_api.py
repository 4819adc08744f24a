"""The requests to the API server, against a stand-in that answers as it does."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from services.executor.adapters.sandbox.pods.kubernetes_api import KubernetesPodApi
from services.executor.adapters.sandbox.pods.pod_api import ClusterError, ContainerState, LeaseState
from services.executor.adapters.sandbox.pods.pod_manifest import describe_pod
from services.executor.adapters.sandbox.port import Plan
from services.executor.tests.adapters.sandbox.pods.conftest import CONFIG
from services.executor.tests.pod_cluster import NAMESPACE, PodCluster

OWNER = LeaseState("owner", "uid", "")
POD = describe_pod(CONFIG, "one", "executor", OWNER, Plan(("/bin/true",)), ["/packs"], 0)


async def test_pods_are_created_read_and_deleted(api: KubernetesPodApi, cluster: PodCluster) -> None:
    assert await api.read_pod("one") is None
    await api.create_pod(POD)
    state = await api.read_pod("one")
    assert state is not None
    assert (state.name, state.owner, state.containers["tool"]) == ("one", "uid", ContainerState(running=True))
    cluster.pods["one"].kill("OOMKilled")
    [state] = await api.list_pods()
    assert state.containers["tool"] == ContainerState(ended="OOMKilled")
    await api.delete_pod("one")
    await api.delete_pod("one")
    assert await api.list_pods() == []


async def test_a_refusal_has_its_status(api: KubernetesPodApi, cluster: PodCluster) -> None:
    cluster.refused = "no"
    with pytest.raises(ClusterError) as caught:
        await api.create_pod(POD)
    assert caught.value.status == 403


async def test_a_lease_is_taken_over_renewed_and_deleted(api: KubernetesPodApi, cluster: PodCluster) -> None:
    first = await api.create_lease("one")
    second = await api.create_lease("one")
    assert first.uid != second.uid
    assert await api.renew_lease("one")
    [renewed] = await api.list_leases()
    assert (renewed.uid, renewed.renewed != second.renewed) == (second.uid, True)
    await api.delete_lease("one")
    await api.delete_lease("one")
    assert not await api.renew_lease("one")


async def test_a_program_in_a_pod_is_fed_and_ends_with_its_input(api: KubernetesPodApi) -> None:
    await api.create_pod(POD)
    session = await api.execute("one", "tool", ("/bin/cat",))
    await session.send(b"hello")
    assert await session.receive() == b"hello"
    await session.close()
    assert await session.receive() == b""
    with pytest.raises(ConnectionError):
        await session.send(b"more")


async def test_the_end_of_a_program_ends_its_output(api: KubernetesPodApi) -> None:
    await api.create_pod(POD)
    session = await api.execute("one", "tool", ("/bin/echo", "two words; $x"))
    output = b""
    async with asyncio.timeout(30):
        while chunk := await session.receive():
            output += chunk
    assert output == b"two words; $x\n"
    await session.close()


async def test_a_pod_that_is_gone_cannot_be_entered(api: KubernetesPodApi) -> None:
    with pytest.raises(ClusterError):
        await api.execute("one", "tool", ("/bin/true",))


async def test_missing_credentials_are_reported(tmp_path: Path) -> None:
    for kubeconfig in (tmp_path / "absent", None):
        with pytest.raises(ClusterError):
            await KubernetesPodApi(NAMESPACE, kubeconfig).list_pods()
