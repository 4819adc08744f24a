"""Upgrades, their undoing, evictions and kills under a steady load: no call fails, no effect is lost or doubled."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.deployed_mesh import UPGRADE_ORDER, DeployedMesh, RunningLoad
from tests.cluster.shared_reports import SharedReports
from tests.cluster.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(7200)]
KILLS = 50


def require_evidence(mesh: DeployedMesh, token: str, load: RunningLoad) -> None:
    """Fails unless every call was answered once and the log has all of them."""
    load.require_no_failure()
    mesh.call(token, "audit", "verify")
    mesh.require_records(token, load.read().invocations.values())


def test_a_rolling_update_of_each_service_fails_no_call(mesh: DeployedMesh, token: str) -> None:
    with mesh.steady_load(token) as load:
        load.wait_for_calls()
        for service in UPGRADE_ORDER:
            mesh.replace_pods(service, "rollout", "restart", f"deployment/{service}")
            load.wait_for_calls()
            load.require_no_failure(service)
    require_evidence(mesh, token, load)


@pytest.mark.parametrize("service", UPGRADE_ORDER)
def test_an_update_is_undone_without_a_failed_call(mesh: DeployedMesh, token: str, service: str) -> None:
    with mesh.steady_load(token) as load:
        load.wait_for_calls()
        mesh.kubectl(service, "rollout", "restart", f"deployment/{service}")
        mesh.kubectl(service, "rollout", "undo", f"deployment/{service}")
        mesh.wait_for(service)
        load.wait_for_calls()
    load.require_no_failure()


def test_pods_are_evicted_without_a_failed_call(pairs: DeployedMesh, token: str) -> None:
    """As `kubectl drain` does it: one after the other, as the disruption budgets allow."""
    with pairs.steady_load(token) as load:
        load.wait_for_calls()
        for service in UPGRADE_ORDER:
            for pod in [each["metadata"]["name"] for each in pairs.pods(service)]:
                wait_until(lambda service=service, pod=pod: pairs.evict(service, pod))  # type: ignore[misc]
                pairs.wait_for(service)
            load.wait_for_calls()
            load.require_no_failure(service)
    require_evidence(pairs, token, load)


@pytest.fixture
def reports(pairs: DeployedMesh, token: str, tmp_path: Path) -> Iterator[SharedReports]:
    """One volume for all executors, which writes reach without an approval."""
    made = SharedReports(pairs)
    made.register_writer(token, tmp_path)
    made.mount()
    yield made
    made.unmount()


def test_fifty_pods_killed_at_random_fail_no_call_and_double_no_effect(
    pairs: DeployedMesh, token: str, reports: SharedReports
) -> None:
    chosen = random.Random(32)
    with pairs.steady_load(token) as load, pairs.steady_load(token, "reports") as writes:
        load.wait_for_calls()
        writes.wait_for_calls()
        for _ in range(KILLS):
            service = chosen.choice(UPGRADE_ORDER)
            victim = chosen.choice(pairs.pods(service))["metadata"]["name"]
            pairs.kubectl(service, "delete", f"pod/{victim}", "--grace-period=0", "--force", "--wait=false")
            load.wait_for_calls(5)
            writes.wait_for_calls(5)
            pairs.wait_for(service)
            load.require_no_failure(service, victim)
            writes.require_no_failure(service, victim)
    require_evidence(pairs, token, load)
    require_evidence(pairs, token, writes)
    # A second write of the same report would have failed. Uncertain are calls whose executor was killed amid them.
    written, ended = reports.written(), writes.read()
    assert set(ended.invocations) <= written
    assert written <= {*ended.invocations, *ended.uncertain}
