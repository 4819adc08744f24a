"""Signals of abuse: by whom, how many, and within bounded memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client import REGISTRY

from libs.common.errors import Reason
from libs.common.telemetry.log import Log
from libs.common.testing.clock import ManualClock
from services.executor.adapters.telemetry import abuse_signals
from services.executor.adapters.telemetry.abuse_signals import THRESHOLD, WINDOW_SECONDS, AbuseSignals
from services.executor.domain.invocation import Invocation
from services.executor.tests.samples import a_caller, a_request, a_tool


def ended(reason: Reason | None, subject: str = "did:web:x:mallory", qualified: str = "acme.pay") -> Any:
    made = Invocation(a_request(caller=replace(a_caller(), subject=subject)), ManualClock(), None)
    made.reason, made.tool = reason, a_tool(qualified=qualified)
    return made


class Watch:
    """Signals with a clock, and how often each metric grew."""

    def __init__(self, file: Path) -> None:
        self.clock, self.file = ManualClock(), file
        self._descriptor = file.open("wb")
        self.signals = AbuseSignals(Log("executor", level="info", descriptor=self._descriptor.fileno()), self.clock)

    def count(self, kind: str, party: str, signal: str) -> float:
        labels = {"party": party, "signal": signal}
        return REGISTRY.get_sample_value(f"toolmesh_executor_abuse_{kind}_total", labels) or 0.0

    def lines(self) -> list[str]:
        return self.file.read_text().splitlines()


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    return Watch(tmp_path / "log")


def test_every_signal_is_counted_and_what_is_none_is_not(watch: Watch) -> None:
    denied, invalid = watch.count("signals", "caller", "denied"), watch.count("signals", "provider", "invalid_results")
    for reason in (Reason.SCOPE_MISSING, Reason.PERMISSION_DENIED, Reason.RESULT_INVALID, None, Reason.CANCELED):
        watch.signals.observe(ended(reason))
    assert watch.count("signals", "caller", "denied") == denied + 2
    assert watch.count("signals", "provider", "invalid_results") == invalid + 1
    assert watch.lines() == []


def test_many_signals_of_one_party_are_warned_of_once_in_a_window(watch: Watch) -> None:
    before = watch.count("alarms", "provider", "crashes")
    for _ in range(2):
        for number in range(3 * THRESHOLD):
            watch.signals.observe(ended(Reason.TOOL_CRASHED, subject=f"did:web:x:s{number}"))
            watch.signals.observe(ended(Reason.TOOL_CRASHED, qualified=f"other{number}.pay"))
        watch.clock.advance(WINDOW_SECONDS)
    assert watch.count("alarms", "provider", "crashes") == before + 2
    assert [('"acme"' in line, '"crashes"' in line) for line in watch.lines()] == [(True, True)] * 2


def test_a_caller_below_the_threshold_raises_no_alarm(watch: Watch) -> None:
    before = watch.count("alarms", "caller", "denied")
    for _ in range(2):
        for _ in range(THRESHOLD - 1):
            watch.signals.observe(ended(Reason.SCOPE_MISSING))
        watch.clock.advance(WINDOW_SECONDS)
    assert watch.count("alarms", "caller", "denied") == before
    for _ in range(THRESHOLD):
        watch.signals.observe(ended(Reason.SCOPE_MISSING))
    assert watch.count("alarms", "caller", "denied") == before + 1


def test_callers_without_end_take_bounded_memory(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abuse_signals, "MAX_PARTIES", 5)
    before = watch.count("signals", "caller", "limited")
    for number in range(50):
        watch.signals.observe(ended(Reason.RATE_LIMITED, subject=f"did:web:x:s{number}"))
    assert len(watch.signals._counts) == 5
    assert watch.count("signals", "caller", "limited") == before + 50


def test_a_tool_that_was_not_found_has_no_provider(watch: Watch) -> None:
    before = watch.count("signals", "provider", "crashes")
    unknown = ended(Reason.TOOL_CRASHED)
    unknown.tool = None
    watch.signals.observe(unknown)
    assert watch.count("signals", "provider", "crashes") == before
