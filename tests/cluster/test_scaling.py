"""More pods under load and fewer after it, and the duties of a leader that is killed."""

from __future__ import annotations

import re
import urllib.request
from typing import Any

import pytest

from tests.cluster.deployed_mesh import DeployedMesh
from tests.cluster.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600)]
_LEADS = re.compile(r"^toolmesh_audit_relay_leads\S* 1(\.0)?$", re.MULTILINE)
# The autoscaler of a cluster waits five minutes before it scales down; the test asks for less.
_FEWER_SOON = (
    '{"spec": {"minReplicas": 1, "maxReplicas": 4, "behavior": {"scaleDown": {"stabilizationWindowSeconds": 15}}}}'
)


def test_the_executor_scales_up_under_load_and_down_after_it(mesh: DeployedMesh, token: str) -> None:
    mesh.kubectl("executor", "patch", "hpa", "executor", "--patch", _FEWER_SOON)
    wait_until(lambda: len(mesh.pods("executor")) == 1)
    mesh.wait_for("executor")
    with mesh.steady_load(token, "flood") as load:
        wait_until(lambda: len(mesh.pods("executor")) >= 2)
        mesh.wait_for("executor")
        load.wait_for_calls()
    wait_until(lambda: len(mesh.pods("executor")) == 1)
    load.require_no_failure()


def is_ready(pod: dict[str, Any]) -> bool:
    return {"Ready": "True"}.items() <= {each["type"]: each["status"] for each in pod["status"]["conditions"]}.items()


def leaders(mesh: DeployedMesh) -> list[str]:
    """Returns the pods of audit that relay its records. A pod that starts has no metrics yet."""
    found = []
    for name in (pod["metadata"]["name"] for pod in mesh.pods("audit") if is_ready(pod)):
        with (
            mesh.forward(f"pod/{name}", 9090) as port,
            urllib.request.urlopen(f"http://localhost:{port}/metrics") as answer,
        ):
            found += [name] if _LEADS.search(answer.read().decode()) else []
    return found


def test_the_relay_moves_to_another_pod_when_its_pod_is_killed(pairs: DeployedMesh) -> None:
    wait_until(lambda: len(leaders(pairs)) == 1)
    (leader,) = leaders(pairs)
    pairs.kubectl("audit", "delete", f"pod/{leader}", "--grace-period=0", "--force", "--wait=false")
    wait_until(lambda: len(leaders(pairs)) == 1 and leader not in leaders(pairs))
