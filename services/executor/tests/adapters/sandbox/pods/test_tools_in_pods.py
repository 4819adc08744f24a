"""Tools of the tier `machine` through the runners: resolved once pods can be used, warm, stopped at their deadline."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from libs.common.errors import Reason
from libs.common.telemetry.log import Log
from services.executor.adapters.runners.factory import RunnerConfig, SandboxedRunners
from services.executor.adapters.sandbox.pods.kubernetes_api import KubernetesPodApi
from services.executor.adapters.sandbox.pods.sandbox import PodSandbox
from services.executor.domain.tool import Access, Limit
from services.executor.domain.volumes import Volume
from services.executor.tests.adapters.sandbox.pods.conftest import CONFIG
from services.executor.tests.packing import command_tool, confined, python_tool, work
from services.executor.tests.pod_cluster import NAMESPACE, PodCluster
from services.executor.tests.running import PACKS, Running, own_tmp
from services.executor.tests.waiting import until

__all__ = ["own_tmp"]


@pytest.fixture
async def running(tmp_path: Path, cluster: PodCluster, own_tmp: Path) -> AsyncIterator[Running]:
    log = tmp_path / "log"
    descriptor = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    logging = Log("executor", descriptor=descriptor)
    pods = PodSandbox(KubernetesPodApi(NAMESPACE, cluster.kubeconfig), CONFIG, "executor-test", logging)
    runners = SandboxedRunners(
        {"machine": pods}, RunnerConfig(packs=[PACKS], volumes={"files": Volume(tmp_path)}), logging
    )
    await runners.start()
    pods.listen(runners.environment.refresh)
    made = Running(runners, log)
    # Resolved before pods can be used, and again afterwards.
    assert "missing" in (made.sandbox_for(tool("plain:mess")) or "")
    assert runners.capabilities().tiers == ()
    await pods.open()
    await until(lambda: runners.capabilities().tiers == ("machine",))
    yield made
    await runners.stop()
    os.close(descriptor)
    assert (cluster.pods, cluster.leases) == ({}, {})


def tool(name: str, **changes: Any) -> Any:
    return python_tool(f"tricks/{name}", confinement=confined(tier="machine"), **changes)


async def test_a_python_tool_stays_in_its_pod_between_calls(running: Running, cluster: PodCluster) -> None:
    assert (running.sandbox_for(tool("plain:mess")) or "").startswith("machine/pod python tricks@")
    before = len(cluster.created)
    left = await running.value(tool("plain:mess"), work(do="litter"))
    assert (await running.value(tool("plain:mess"), work(do="found")))["token"] == left["token"]
    assert len(cluster.created) == before + 1


async def test_a_program_runs_in_a_pod_of_its_own(running: Running, cluster: PodCluster) -> None:
    echo = command_tool("/usr/bin/cat", confinement=confined(tier="machine"))
    assert await running.value(echo, work(text="hello")) == {"text": "hello"}
    await until(lambda: len(cluster.pods) == 0)


async def test_a_canceled_call_leaves_no_pod(running: Running, cluster: PodCluster) -> None:
    call = asyncio.create_task(
        running(command_tool("/usr/bin/sleep", "1000", confinement=confined(tier="machine")), work())
    )
    await until(lambda: any(pod.programs[1:] for pod in cluster.pods.values()))
    call.cancel()
    await asyncio.wait({call})
    await until(lambda: not cluster.pods)


async def test_a_tool_of_a_weaker_tier_may_run_in_a_pod_and_one_with_volumes_does_not(running: Running) -> None:
    weaker = python_tool("tricks/plain:mess", confinement=confined(tier="kernel"))
    assert await running.value(weaker, work(do="found"))
    declared = frozenset({Limit.VOLUMES})
    reading = confined(tier="machine", access=Access.FILES, reads=("files",), declared=declared)
    refused = python_tool("tricks/plain:who", confinement=reading)
    assert "missing" in (running.sandbox_for(refused) or "")
    failing = await running.failure(refused, work())
    assert failing.reason is Reason.SANDBOX_UNAVAILABLE
