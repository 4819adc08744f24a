"""What the doctor of a cluster finds in a view of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from toolmesh_sdk.cli.views.doctor_checks import FAIL, OK, WARN, Check

from localmesh.cluster_doctor.cluster_checks import check_cluster
from localmesh.cluster_doctor.cluster_view import SERVICES, Certificate, ClusterView, Job, Pod, Scaler, Workload
from localmesh.cluster_doctor.service_metrics import ServiceMetrics
from localmesh.deploy.layout import Namespaces, tls_secret
from localmesh.state.certificates import Authority
from localmesh.state.pki import IDENTITIES

NOW = datetime(2026, 5, 1, tzinfo=UTC)
SPACES = Namespaces()
DAY = timedelta(days=1)
AUTHORITY = Authority.create(NOW - DAY, 3650 * DAY)


def certificate(identity: str, days: float = 60) -> Certificate:
    leaf = AUTHORITY.issue(identity, NOW - DAY, (days + 1) * DAY, (identity,))
    return Certificate(SPACES.of(identity), tls_secret(identity), leaf.certificate)


HEALTHY = ClusterView(
    workloads=[Workload(SPACES.of(name), name, 2, 2, 2) for name in (*SERVICES, "envoy")],
    pods=[Pod("toolmesh", "authz-1", NOW, certificates=("authz-tls",))],
    jobs=[Job("toolmesh", "authz-migrations-0-1-0", complete=True, failed=0)],
    scalers=[Scaler("toolmesh", "authz", 1, 4)],
    certificates=[certificate(identity) for identity in IDENTITIES],
    metrics=[ServiceMetrics("authz-1")],
)


def problems(view: ClusterView) -> dict[str, Check]:
    found = check_cluster(view, SPACES, NOW)
    return {check.name: check for check in found if check.status != OK}


def test_a_healthy_mesh_has_no_problem_and_every_part_is_named() -> None:
    assert problems(HEALTHY) == {}
    names = {check.name for check in check_cluster(HEALTHY, SPACES, NOW)}
    assert names >= {*SERVICES, "envoy", "certificate executor-tls", "job authz-migrations-0-1-0", "autoscaler authz"}


@pytest.mark.parametrize(("days", "status"), [(-2, FAIL), (0, FAIL), (10, WARN), (22, OK)])
def test_a_certificate_is_judged_by_its_days(days: float, status: str) -> None:
    others = [each for each in HEALTHY.certificates if each.secret != "authz-tls"]
    found = problems(replace(HEALTHY, certificates=[*others, certificate("authz", days)]))
    assert {name: check.status for name, check in found.items()} == (
        {} if status == OK else {"certificate authz-tls": status}
    )
    assert all(check.advice for check in found.values())


def test_a_missing_and_an_unreadable_certificate_fail() -> None:
    kept = [each for each in HEALTHY.certificates if each.secret not in ("edge-tls", "audit-tls")]
    found = problems(replace(HEALTHY, certificates=[*kept, Certificate("toolmesh", "audit-tls", b"no PEM")]))
    assert {name: check.status for name, check in found.items()} == {
        "certificate edge-tls": FAIL,
        "certificate audit-tls": FAIL,
    }


def test_envoys_that_run_with_a_certificate_that_was_renewed_are_named() -> None:
    old = NOW - 3 * DAY
    public = Certificate("toolmesh", "edge-public-tls", certificate("edge").content)
    mounted = ("edge-tls", "edge-public-tls")
    pods = [
        Pod("toolmesh", "envoy-1", old, certificates=mounted),
        Pod("toolmesh", "envoy-2", NOW, certificates=mounted),
    ]
    # Services read theirs again; the same name in another namespace is another secret.
    pods += [Pod("toolmesh", "authz-1", old, certificates=("authz-tls",)), Pod("toolmesh", "gateway-1", None)]
    pods += [Pod("elsewhere", "envoy-1", old, certificates=mounted)]
    found = problems(replace(HEALTHY, pods=pods, certificates=[*HEALTHY.certificates, public]))
    assert {name: check.status for name, check in found.items()} == {
        "certificate edge-tls": WARN,
        "certificate edge-public-tls": WARN,
    }
    assert found["certificate edge-tls"].detail.endswith(" envoy-1")


@pytest.mark.parametrize(
    ("counts", "status"), [((2, 0, 2), FAIL), ((2, 1, 2), WARN), ((2, 2, 1), WARN), ((2, 2, 2), OK), ((0, 0, 0), OK)]
)
def test_a_workload_is_judged_by_its_ready_pods(counts: tuple[int, int, int], status: str) -> None:
    others = [each for each in HEALTHY.workloads if each.name != "audit"]
    found = problems(replace(HEALTHY, workloads=[*others, Workload("toolmesh", "audit", *counts)]))
    assert {name: check.status for name, check in found.items()} == ({} if status == OK else {"audit": status})


def test_a_part_that_is_not_deployed_fails_and_more_than_the_mesh_is_looked_at() -> None:
    profiles = Workload("toolmesh-nodes", "seccomp-profiles", 3, 1, 3)
    others = [each for each in HEALTHY.workloads if each.name != "executor"]
    # One of that name in another namespace is not the mesh's.
    stranger = Workload("toolmesh", "executor", 1, 1, 1)
    found = problems(replace(HEALTHY, workloads=[*others, stranger, profiles]))
    assert {name: check.status for name, check in found.items()} == {"executor": FAIL, "seccomp-profiles": WARN}


@pytest.mark.parametrize(
    ("changes", "name", "status"),
    [
        ({"jobs": [Job("toolmesh", "init", complete=False, failed=2)]}, "job init", FAIL),
        ({"jobs": [Job("toolmesh", "init", complete=False, failed=0)]}, "job init", WARN),
        ({"pods": [Pod("toolmesh", "a", None, waiting="CrashLoopBackOff")]}, "pod a", FAIL),
        ({"pods": [Pod("toolmesh", "a", NOW, restarts=5)]}, "pod a", WARN),
        ({"scalers": [Scaler("toolmesh", "authz", 4, 4)]}, "autoscaler authz", WARN),
        ({"scalers": [Scaler("toolmesh", "authz", 1, 4, "FailedGetResourceMetric")]}, "autoscaler authz", WARN),
    ],
)
def test_what_else_may_be_wrong(changes: dict[str, list[object]], name: str, status: str) -> None:
    found = problems(replace(HEALTHY, **changes))  # type: ignore[arg-type]
    assert {each: check.status for each, check in found.items()} == {name: status}
    assert found[name].advice
