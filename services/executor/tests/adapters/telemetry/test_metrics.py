"""Metrics of invocations."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from prometheus_client import REGISTRY

from libs.common.errors import Reason
from libs.common.runtime.clock import SystemClock
from libs.common.telemetry.log import Log
from services.executor.adapters.telemetry import metrics
from services.executor.adapters.telemetry.abuse_signals import AbuseSignals
from services.executor.domain.invocation import Invocation
from services.executor.domain.states import State
from services.executor.domain.tool import Tool
from services.executor.tests.samples import a_request, a_tool

PATHS = {
    State.SUCCEEDED: (State.SELECTED, State.ARGUMENTS_READY, State.APPROVED, State.RUNNING, State.SUCCEEDED),
    State.FAILED: (State.FAILED,),
    State.VALIDATION_FAILED: (State.SELECTED, State.VALIDATION_FAILED),
    State.BLOCKED: (State.BLOCKED,),
}


def an_invocation(state: State, tool: Tool | None, **changes: Any) -> Invocation:
    invocation = Invocation(a_request(), SystemClock(), None)
    for step in PATHS[state]:
        invocation.enter(step)
    invocation.tool = tool
    for name, value in changes.items():
        setattr(invocation, name, value)
    return invocation


def count(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def observer() -> metrics.Metrics:
    log = Log("executor", level="error")
    return metrics.Metrics(log, AbuseSignals(log, SystemClock()))


def test_invocations_are_counted_by_tool_version_and_status() -> None:
    seen, tool = observer(), a_tool(name="tools/core.m1/versions/1.0.0", qualified="core.m1")
    seen.ended(an_invocation(State.SUCCEEDED, tool), 0.1)
    seen.ended(an_invocation(State.SUCCEEDED, tool), 0.2)
    seen.ended(an_invocation(State.SUCCEEDED, tool, reason=Reason.AUDIT_UNAVAILABLE), 0.1)
    labels = {"tool": "core.m1", "version": "1.0.0"}
    assert count("toolmesh_tool_invocations_total", **labels, status="succeeded", mutation_class="read_only") == 2
    assert count("toolmesh_tool_invocations_total", **labels, status="withheld", mutation_class="read_only") == 1
    assert count("toolmesh_tool_invocation_latency_seconds_count", **labels, timeout_class="standard") == 3


def test_unknown_tools_share_one_label() -> None:
    seen = observer()
    before = count("toolmesh_tool_invocations_total", tool="unknown", version="", status="blocked", mutation_class="")
    for _ in range(3):
        seen.ended(an_invocation(State.BLOCKED, None), 0.1)
    after = count("toolmesh_tool_invocations_total", tool="unknown", version="", status="blocked", mutation_class="")
    assert after - before == 3


def test_schema_violations_are_counted_by_side_and_replays_by_tool() -> None:
    seen, tool = observer(), a_tool(name="tools/core.m2/versions/1.0.0", qualified="core.m2")
    seen.ended(an_invocation(State.VALIDATION_FAILED, tool), 0.1)
    seen.ended(an_invocation(State.FAILED, tool, reason=Reason.RESULT_INVALID), 0.1)
    seen.ended(an_invocation(State.SUCCEEDED, tool, replayed=True), 0.1)
    assert count("toolmesh_tool_schema_validation_failures_total", tool="core.m2", phase="input") == 1
    assert count("toolmesh_tool_schema_validation_failures_total", tool="core.m2", phase="output") == 1
    assert count("toolmesh_tool_idempotency_replays_total", tool="core.m2") == 1


def test_the_number_of_series_is_bounded(monkeypatch: Any) -> None:
    monkeypatch.setattr(metrics, "_MAX_VERSIONS", 1)
    seen = observer()
    for number in range(4):
        tool = a_tool(name=f"tools/core.m3/versions/{number}.0.0", qualified="core.m3", version=f"{number}.0.0")
        seen.ended(an_invocation(State.FAILED, tool), 0.1)
    assert count("toolmesh_tool_invocations_total", tool="other", version="", status="failed", mutation_class="") == 3


def test_a_result_that_violates_its_schema_is_logged(tmp_path: Path) -> None:
    path = tmp_path / "log"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    log = Log("executor", level="error", descriptor=descriptor)
    seen = metrics.Metrics(log, AbuseSignals(log, SystemClock()))
    broken = an_invocation(State.FAILED, a_tool(), reason=Reason.RESULT_INVALID)
    seen.ended(broken, 0.1)
    seen.ended(an_invocation(State.FAILED, a_tool(), reason=Reason.EXECUTION_FAILED), 0.1)
    os.close(descriptor)
    [line] = path.read_bytes().splitlines()
    assert broken.invocation_id.encode() in line
