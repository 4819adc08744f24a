"""Metrics and log lines of the relay."""

from __future__ import annotations

import os
from typing import Any

import orjson
import pytest
from prometheus_client import REGISTRY

from libs.common.telemetry.log import Log
from services.audit.adapters.relay.metrics import RelayMetrics
from services.audit.domain.errors import SinkError
from services.audit.domain.relay.ports import RelayStatus


class CapturedLog:
    """A log whose lines can be read."""

    def __init__(self) -> None:
        self._read, write = os.pipe()
        self.log = Log("audit", descriptor=write)

    def events(self) -> list[tuple[str, str]]:
        lines: list[dict[str, Any]] = [orjson.loads(line) for line in os.read(self._read, 1 << 20).splitlines()]
        return [(line["level"], line["event"]) for line in lines]


@pytest.fixture
def captured() -> CapturedLog:
    return CapturedLog()


def value(name: str) -> float:
    found = REGISTRY.get_sample_value(f"toolmesh_audit_relay_{name}")
    assert found is not None
    return found


def test_the_lag_is_in_the_metrics_and_on_the_operators_port(captured: CapturedLog) -> None:
    metrics = RelayMetrics(captured.log, "redis")
    assert metrics.describe() == "relay redis: starting\n"
    metrics.report_status(RelayStatus(leads=True, records_behind=12, seconds_behind=3.25))
    assert (value("leads"), value("records_behind"), value("seconds_behind")) == (1, 12, 3.25)
    assert metrics.describe() == "relay redis: leads, 12 records and 3.2 s behind\n"
    metrics.report_status(RelayStatus(leads=False, records_behind=0, seconds_behind=0))
    assert value("leads") == 0
    assert metrics.describe() == "relay redis: stands by, 0 records and 0 s behind\n"


def test_relayed_missed_and_failed_records_are_counted(captured: CapturedLog) -> None:
    metrics = RelayMetrics(captured.log, "redis")
    before = [value(name) for name in ("records_total", "missed_total", "failures_total")]
    metrics.report_relayed(7)
    metrics.report_missed(2)
    metrics.report_failure(SinkError("away"), 1.0)
    after = [value(name) for name in ("records_total", "missed_total", "failures_total")]
    assert [b - a for a, b in zip(before, after, strict=True)] == [7, 2, 1]


def test_a_failure_and_its_end_are_logged_once(captured: CapturedLog) -> None:
    metrics = RelayMetrics(captured.log, "redis")
    metrics.report_failure(SinkError("away"), 1.0)
    metrics.report_failure(SinkError("away"), 2.0)
    metrics.report_status(RelayStatus(leads=True, records_behind=1, seconds_behind=0))
    assert "failing" in metrics.describe()
    metrics.report_relayed(1)
    metrics.report_relayed(1)
    assert [event for level, event in captured.events() if event != "relay"] == [
        "relay failed, will retry",
        "relay recovered",
    ]


def test_lateness_and_its_end_are_logged_once(captured: CapturedLog) -> None:
    metrics = RelayMetrics(captured.log, "redis", late=10)
    for seconds in (1, 20, 30, 2, 1):
        metrics.report_status(RelayStatus(leads=True, records_behind=1, seconds_behind=seconds))
    assert captured.events()[1:] == [("warning", "relay is late"), ("info", "relay caught up")]
