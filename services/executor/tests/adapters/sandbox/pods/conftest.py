"""A sandbox of pods on a stand-in for a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from libs.common.telemetry.log import Log
from services.executor.adapters.sandbox.pods.kubernetes_api import KubernetesPodApi
from services.executor.adapters.sandbox.pods.pod_manifest import PodConfig
from services.executor.adapters.sandbox.pods.sandbox import PodSandbox
from services.executor.adapters.sandbox.rootfs import interpreter_path
from services.executor.tests.pod_cluster import NAMESPACE, PodCluster, serving_cluster
from services.executor.tests.sandboxes import missing

CONFIG = PodConfig(NAMESPACE, "registry.local/toolmesh/executor:0.1.0", interpreter_path())


@pytest.fixture
async def cluster() -> AsyncIterator[PodCluster]:
    if why := await missing("bubblewrap"):
        pytest.skip(f"bubblewrap: {why}")
    async with serving_cluster() as served:
        yield served


@pytest.fixture
async def api(cluster: PodCluster) -> AsyncIterator[KubernetesPodApi]:
    made = KubernetesPodApi(NAMESPACE, cluster.kubeconfig)
    yield made
    await made.close()


@pytest.fixture
async def pods(cluster: PodCluster, quiet: Log) -> AsyncIterator[PodSandbox]:
    """A sandbox that was probed."""
    made = PodSandbox(KubernetesPodApi(NAMESPACE, cluster.kubeconfig), CONFIG, "executor-test", quiet)
    await made.probe()
    assert made.unavailable_reason() == ""
    cluster.created.clear()
    yield made
    await made.close()
    assert cluster.pods == {}
    assert cluster.leases == {}
