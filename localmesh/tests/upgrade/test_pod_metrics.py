"""Metrics of pods, through the API server."""

from __future__ import annotations

from typing import Any

from localmesh.deploy.layout import Namespaces
from localmesh.tests.upgrade.conftest import CALLS_A_READING, FakeCluster
from localmesh.upgrade.call_counts import CallCounts
from localmesh.upgrade.pod_metrics import PodMetrics


def test_the_counts_are_those_of_each_ready_pod(client: Any) -> None:
    assert PodMetrics(client, Namespaces()).read() == {"executor-1": CallCounts(CALLS_A_READING, 0)}


def test_a_pod_that_cannot_be_asked_is_left_out(cluster: FakeCluster, client: Any) -> None:
    cluster.unreachable = True
    assert PodMetrics(client, Namespaces()).read() == {}
