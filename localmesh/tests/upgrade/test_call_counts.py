"""Calls and failures in the metrics of Envoy and the executor."""

from __future__ import annotations

import pytest

from localmesh.upgrade.call_counts import CallCounts, CallWindow, count_calls

INVOKE = "/toolmesh.executor.v1.ExecutorService/Invoke"
EXECUTOR = f"""\
# HELP toolmesh_calls_total Calls that ended, by method and status.
# TYPE toolmesh_calls_total counter
toolmesh_calls_total{{method="{INVOKE}",code="OK"}} 90.0
toolmesh_calls_total{{method="{INVOKE}",code="INVALID_ARGUMENT"}} 7.0
toolmesh_calls_total{{method="{INVOKE}",code="INTERNAL"}} 2.0
toolmesh_calls_total{{method="{INVOKE}",code="UNAVAILABLE"}} 1.0
toolmesh_calls_total{{method="/grpc.health.v1.Health/Check",code="UNAVAILABLE"}} 50.0
# TYPE toolmesh_calls_in_flight gauge
toolmesh_calls_in_flight{{method="{INVOKE}"}} 3.0
"""
ENVOY = """\
# TYPE envoy_http_downstream_rq_xx counter
envoy_http_downstream_rq_xx{envoy_response_code_class="2",envoy_http_conn_manager_prefix="ingress"} 50
envoy_http_downstream_rq_xx{envoy_response_code_class="4",envoy_http_conn_manager_prefix="ingress"} 30
envoy_http_downstream_rq_xx{envoy_response_code_class="5",envoy_http_conn_manager_prefix="ingress"} 20
envoy_http_downstream_rq_xx{envoy_response_code_class="5",envoy_http_conn_manager_prefix="ops"} 9
"""


def test_failures_of_the_mesh_are_told_from_those_of_callers() -> None:
    assert count_calls(EXECUTOR) == CallCounts(100, 3)
    assert count_calls(ENVOY) == CallCounts(100, 20)


def test_a_share_of_no_calls_is_none() -> None:
    assert CallCounts().error_rate == 0
    assert CallCounts(200, 3).error_rate == pytest.approx(0.015)


def test_a_window_begins_with_what_is_there_and_follows_pods() -> None:
    window = CallWindow({"old": CallCounts(1000, 900)})
    assert window.add({"old": CallCounts(1010, 901)}) == CallCounts(10, 1)
    # A pod that comes counts from nothing; one that went keeps what it had counted.
    assert window.add({"new": CallCounts(5, 0)}) == CallCounts(15, 1)
    # A container that started again counts from nothing too.
    assert window.add({"new": CallCounts(3, 2)}) == CallCounts(18, 3)
