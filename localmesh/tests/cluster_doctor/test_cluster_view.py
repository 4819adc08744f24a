"""How a cluster is read, by the client of Kubernetes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from localmesh.cluster_doctor.cluster_view import (
    Certificate,
    Job,
    Pod,
    Scaler,
    Workload,
    read_cluster,
)
from localmesh.deploy.api_failures import ClusterUnreachableError


def test_a_cluster_is_read_as_its_api_describes_it(api: Any) -> None:
    view = read_cluster(("mesh",), "one")
    assert view.workloads == [Workload("mesh", "authz", 2, 1, 2), Workload("mesh", "profiles", 3, 2, 3)]
    assert view.pods == [
        Pod("mesh", "authz-1", datetime(2026, 5, 1, 10, tzinfo=UTC), "", 3, ("authz-tls",)),
        Pod("mesh", "audit-1", None, "CrashLoopBackOff", 7),
        # One that is on its way has no problem.
        Pod("mesh", "new-1", None),
    ]
    assert view.jobs == [Job("mesh", "init", complete=True, failed=0), Job("mesh", "late", complete=False, failed=2)]
    assert view.scalers == [Scaler("mesh", "authz", 2, 4, "FailedGetResourceMetric")]
    # No key leaves a secret.
    assert view.certificates == [Certificate("mesh", "authz-tls", b"PEM")]


@pytest.mark.parametrize("status", [401, 403, 500])
def test_a_refusal_is_one_sentence(api: Any, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    monkeypatch.setattr(api, "status", status)
    with pytest.raises(ClusterUnreachableError) as caught:
        read_cluster(("mesh",))
    assert "\n" not in str(caught.value)


def test_a_context_that_is_not_there_and_a_server_that_is_away_are_reported(kubeconfig: Callable[[str], None]) -> None:
    kubeconfig("http://127.0.0.1:1")
    for context in ("absent", "one"):
        with pytest.raises(ClusterUnreachableError):
            read_cluster(("mesh",), context)
