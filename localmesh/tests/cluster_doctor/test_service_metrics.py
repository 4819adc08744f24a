"""Lag and circuits, as the doctor of a cluster reads them from metrics."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from toolmesh_sdk.cli.views.doctor_checks import OK, WARN

from localmesh.cluster_doctor.service_metrics import (
    OPENED_CIRCUITS,
    RELAY_LAG,
    SHARED_CIRCUITS,
    WAITING_ACTS,
    ServiceMetrics,
    check_service_metrics,
    parse_metrics,
)
from services.audit import metrics as audit
from services.executor.adapters.telemetry import http_metrics


def statuses(*metrics: ServiceMetrics) -> dict[str, str]:
    return {check.name: check.status for check in check_service_metrics(metrics)}


def test_without_an_answer_nothing_is_known() -> None:
    assert statuses() == {"metrics": WARN}


@pytest.mark.parametrize(
    ("name", "value", "check"),
    [(RELAY_LAG, 61.0, "relay"), (WAITING_ACTS, 101.0, "acts"), (SHARED_CIRCUITS, 0.0, "circuits")],
)
def test_each_value_is_judged_by_its_own_check(name: str, value: float, check: str) -> None:
    found = statuses(ServiceMetrics("healthy", {SHARED_CIRCUITS: 1.0}), ServiceMetrics("other", {name: value}))
    assert found == {"relay": OK, "acts": OK, "circuits": OK} | {check: WARN}


def test_acts_of_all_services_are_added() -> None:
    pods = [ServiceMetrics(name, {WAITING_ACTS: 60.0}) for name in ("authz-1", "registry-1")]
    assert statuses(*pods)["acts"] == WARN


def test_only_changes_to_open_are_counted() -> None:
    registry = CollectorRegistry()
    changes = Counter(OPENED_CIRCUITS, "Changes.", ["state"], registry=registry)
    Gauge("toolmesh_other", "Something else.", registry=registry).set(7)
    for state, count in (("open", 2), ("half_open", 5), ("closed", 3)):
        changes.labels(state).inc(count)
    assert parse_metrics(generate_latest(registry).decode()) == {OPENED_CIRCUITS: 2.0}


def test_the_services_have_metrics_of_these_names() -> None:
    gauges = {each._name for each in (audit.relay_seconds_behind, http_metrics.circuits_shared)}
    assert gauges == {RELAY_LAG, SHARED_CIRCUITS}
    assert f"{http_metrics.circuit_transitions._name}_total" == OPENED_CIRCUITS
