"""The escape suite against pods on a real node, what only a node keeps, and the end of an executor by SIGKILL."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from libs.common.errors import Reason
from libs.common.telemetry.log import Log
from services.executor.adapters.sandbox.pods.kubernetes_api import KubernetesPodApi
from services.executor.adapters.sandbox.pods.ownership import PodOwnership
from services.executor.adapters.sandbox.pods.pod_manifest import PodConfig
from services.executor.adapters.sandbox.pods.sandbox import PodSandbox
from services.executor.adapters.sandbox.port import Sandbox
from services.executor.tests.adapters.sandbox import test_escapes
from services.executor.tests.sandboxes import MIB, attempt, processes_with, python
from services.executor.tests.waiting import until
from tests.cluster.deployed_mesh import DeployedMesh
from tests.cluster.running_cluster import REPOSITORY

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
NAMESPACE = "toolmesh-tools"
CONFIG = PodConfig(NAMESPACE, "registry.local/toolmesh/executor:0.1.0", "/usr/bin/python3.11")
# Not attacks here: a pod shows folders of its image, which are not the host's, the tool sees the agent among its
# processes, whose environment it cannot read, and tools with volumes are refused.
OTHERWISE = {
    "test_host_secrets_are_absent",
    "test_no_file_or_process_is_left_for_the_next_sandbox",
    "test_concurrent_sandboxes_do_not_see_each_other",
    "test_the_executors_environment_is_not_visible",
    "test_a_run_fills_its_own_copy_of_a_volume_and_no_other",
}
globals().update(
    {name: test for name, test in vars(test_escapes).items() if name.startswith("test_") and name not in OTHERWISE}
)


@pytest.fixture(scope="module")
def kubeconfig(mesh: DeployedMesh) -> Iterator[Path]:
    """The credentials of a cluster with the namespace of tools."""
    with mesh.tool_pods():
        yield mesh.cluster.state.kubeconfig


@pytest.fixture
async def sandbox(kubeconfig: Path) -> AsyncIterator[Sandbox]:
    """Pods on the node."""
    log = Log("executor", descriptor=sys.stderr.fileno())
    made = PodSandbox(KubernetesPodApi(NAMESPACE, kubeconfig), CONFIG, f"test-{uuid.uuid4().hex[:8]}", log)
    await made.open()
    await until(lambda: made.bounds() is not None)
    yield made
    await made.close()


async def test_a_pod_reaches_neither_the_api_server_nor_pods_nor_the_internet(
    sandbox: Sandbox, mesh: DeployedMesh
) -> None:
    """Even where the filter permits sockets, as to a tool with hosts."""
    addresses = [mesh.cluster.get("--namespace=default", "service", "kubernetes")["spec"]["clusterIP"]]
    addresses += [pod["status"]["podIP"] for pod in mesh.pods("executor") + mesh.pods("registry")]
    for address, port in [*((address, 443) for address in addresses), (addresses[-1], 8443), ("1.1.1.1", 443)]:
        code = f"import socket; socket.create_connection(('{address}', {port}), 3); print('escaped')"
        tried = await attempt(sandbox, python(code, loopback=True))
        assert tried.output == b""
        assert tried.report.code == 1


async def test_memory_beyond_the_limit_ends_the_tool(sandbox: Sandbox) -> None:
    tried = await attempt(sandbox, python("held = bytearray(300 << 20)", memory_bytes=100 * MIB))
    assert tried.error.reason is Reason.TOOL_OUT_OF_MEMORY


async def test_nothing_is_left_after_sigkill_of_what_started_a_pod(kubeconfig: Path, sandbox: Sandbox) -> None:
    marker, instance = uuid.uuid4().hex, f"killed-{uuid.uuid4().hex[:8]}"
    code = f"""
import asyncio, sys
from pathlib import Path
from libs.common.telemetry.log import Log
from tests.cluster.test_pod_escapes import CONFIG, NAMESPACE, KubernetesPodApi, PodSandbox, python

async def main():
    api = KubernetesPodApi(NAMESPACE, Path({str(kubeconfig)!r}))
    pods = PodSandbox(api, CONFIG, {instance!r}, Log("executor", descriptor=2))
    await pods.probe()
    await pods.start(python("import time; time.sleep(1000)", "{marker}"))
    print("started", flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""
    pipe = asyncio.subprocess.PIPE
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    starter = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=pipe, env=environment, cwd=REPOSITORY
    )
    assert starter.stdout is not None
    assert await starter.stdout.readline() == b"started\n"
    # The starter has the marker on its command line too.
    assert len(processes_with(marker)) > 1
    api = KubernetesPodApi(NAMESPACE, kubeconfig)
    [owner] = [lease.uid for lease in await api.list_leases() if lease.name == instance]
    left = {pod.name for pod in await api.list_pods() if pod.owner == owner}
    assert left != set()
    starter.send_signal(signal.SIGKILL)
    await starter.wait()
    await until(lambda: processes_with(marker) == [])
    again = PodOwnership(api, instance, Log("executor", descriptor=sys.stderr.fileno()))
    await again.lease()
    await again.sweep()
    async with asyncio.timeout(120):
        while left & {pod.name for pod in await api.list_pods()}:  # noqa: ASYNC110
            await asyncio.sleep(0.5)
    await again.release()
    await api.close()
