"""What operators watch: volume, latency, replays and broken contracts, by tool. Unknown tools share one label."""

from __future__ import annotations

from typing import NamedTuple

from prometheus_client import Counter, Histogram

from libs.common.errors import Reason
from libs.common.telemetry.fast_metrics import FastCounter, FastHistogram, fast_counter, fast_histogram
from libs.common.telemetry.log import Log
from libs.common.telemetry.metrics import SECONDS
from services.executor.domain.invocation import Invocation
from services.executor.domain.states import State
from services.executor.domain.tool import Tool

invocations = fast_counter(
    "toolmesh_tool_invocations_total", "Invocations that ended.", ["tool", "version", "status", "mutation_class"]
)
latency = fast_histogram(
    "toolmesh_tool_invocation_latency_seconds",
    "How long invocations took.",
    ["tool", "version", "timeout_class"],
    buckets=SECONDS,
)
replays = Counter(
    "toolmesh_tool_idempotency_replays_total", "Invocations answered from an earlier one with the same key.", ["tool"]
)
validation_failures = Counter(
    "toolmesh_tool_schema_validation_failures_total", "Arguments or results that broke their schema.", ["tool", "phase"]
)

decisions = fast_counter(
    "toolmesh_executor_decisions_total", "Decisions by where they came from: remembered, or asked of authz.", ["source"]
)
reservations = Counter(
    "toolmesh_executor_reservations_total",
    "Limited calls by what came of counting them: granted, rate_limited, budget_exhausted or uncounted.",
    ["outcome"],
)
reservation_seconds = Histogram(
    "toolmesh_executor_reservation_seconds", "How long counting a limited call took.", buckets=SECONDS
)

# Versions come and go; a process that lives long must not carry a series for each it ever saw.
_MAX_VERSIONS = 2000
_BROKEN_INPUT = frozenset({State.VALIDATION_FAILED, State.SCHEMA_PARSE_FAILED})


class _Labels(NamedTuple):
    tool: str
    version: str
    mutation: str
    timeout_class: str


_UNKNOWN = _Labels("unknown", "", "", "")
_OTHER = _Labels("other", "", "", "")


class Metrics:
    """Counts invocations. The children of a metric are looked up once per tool, because that is what costs."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._labels: dict[str, _Labels] = {}
        self._counters: dict[tuple[_Labels, str], FastCounter] = {}
        self._histograms: dict[_Labels, FastHistogram] = {}

    def ended(self, invocation: Invocation, seconds: float) -> None:
        """Count an invocation that is over."""
        labels = _UNKNOWN if invocation.tool is None else self._labels_of(invocation.tool)
        status = _status(invocation)
        counter = self._counters.get((labels, status))
        if counter is None:
            counter = invocations.labels(labels.tool, labels.version, status, labels.mutation)
            self._counters[labels, status] = counter
        histogram = self._histograms.get(labels)
        if histogram is None:
            histogram = latency.labels(labels.tool, labels.version, labels.timeout_class)
            self._histograms[labels] = histogram
        counter.inc()
        histogram.observe(seconds)
        if invocation.replayed:
            replays.labels(labels.tool).inc()
        if invocation.state in _BROKEN_INPUT:
            validation_failures.labels(labels.tool, "input").inc()
        elif invocation.reason is Reason.RESULT_INVALID:
            validation_failures.labels(labels.tool, "output").inc()
            # A caller cannot mend it, so somebody else must hear of it.
            version = f"{labels.tool}@{labels.version}"
            self._log.error("result broke its contract", tool=version, invocation=invocation.invocation_id)

    def unexpected(self, cause: Exception) -> None:
        """Log what nobody foresaw."""
        self._log.error("unforeseen", cause=cause)

    def _labels_of(self, tool: Tool) -> _Labels:
        known = self._labels.get(tool.name)
        if known is None:
            if len(self._labels) >= _MAX_VERSIONS:
                return _OTHER
            known = _Labels(tool.qualified, tool.version, tool.mutation, tool.timeout_class)
            self._labels[tool.name] = known
        return known


def _status(invocation: Invocation) -> str:
    """The state it ended in; a success whose record the log did not confirm never reached the caller."""
    if invocation.state is State.SUCCEEDED and invocation.reason is not None:
        return "withheld"
    return invocation.state
