"""Metrics of invocations by tool: count, latency, replays and schema violations. Unknown tools share one label."""

from __future__ import annotations

from typing import NamedTuple

from prometheus_client import Counter, Histogram

from libs.common.errors import Reason
from libs.common.redaction.scanner import Scanner
from libs.common.telemetry.fast_metrics import FastCounter, FastHistogram, fast_counter, fast_histogram
from libs.common.telemetry.log import Log
from libs.common.telemetry.metrics import SECONDS
from libs.common.tool_names import split_version_name
from services.executor.adapters.telemetry.abuse_signals import AbuseSignals
from services.executor.domain.invocation import Invocation
from services.executor.domain.states import State
from services.executor.domain.tool import Tool, VersionIdentity

invocations = fast_counter(
    "toolmesh_tool_invocations_total", "Invocations that ended.", ["tool", "version", "status", "mutation_class"]
)
latency = fast_histogram(
    "toolmesh_tool_invocation_latency_seconds",
    "Duration of invocations.",
    ["tool", "version", "timeout_class"],
    buckets=SECONDS,
)
replays = Counter(
    "toolmesh_tool_idempotency_replays_total",
    "Invocations answered with the stored outcome of the same idempotency key.",
    ["tool"],
)
validation_failures = Counter(
    "toolmesh_tool_schema_validation_failures_total",
    "Arguments or results that violated their schema.",
    ["tool", "phase"],
)

decisions = fast_counter(
    "toolmesh_executor_decisions_total", "Decisions by source: remembered (cache) or asked (authz).", ["source"]
)
reservations = Counter(
    "toolmesh_executor_reservations_total",
    "Budget reservations by outcome: granted, rate_limited, budget_exhausted or uncounted.",
    ["outcome"],
)
reservation_seconds = Histogram(
    "toolmesh_executor_reservation_seconds", "Duration of budget reservations.", buckets=SECONDS
)

# Bounds the number of series of a long-lived process.
_MAX_VERSIONS = 2000
_INPUT_FAILURES = frozenset({State.VALIDATION_FAILED, State.SCHEMA_PARSE_FAILED})


class _Labels(NamedTuple):
    tool: str
    version: str
    mutation: str
    timeout_class: str


_UNKNOWN = _Labels("unknown", "", "", "")
_OTHER = _Labels("other", "", "", "")


class Metrics:
    """Counts invocations. Labeled metrics are looked up once per tool, because the lookup is expensive."""

    def __init__(self, log: Log, signals: AbuseSignals) -> None:
        self._log, self._signals = log, signals
        self._labels: dict[tuple[str, bool], _Labels] = {}
        self._counters: dict[tuple[_Labels, str], FastCounter] = {}
        self._histograms: dict[_Labels, FastHistogram] = {}

    def ended(self, invocation: Invocation, seconds: float) -> None:
        """Count an invocation that ended."""
        labels = self._labels_of(invocation)
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
        if invocation.reason is not None:
            self._signals.observe(invocation)
        if invocation.replayed:
            replays.labels(labels.tool).inc()
        if invocation.state in _INPUT_FAILURES:
            validation_failures.labels(labels.tool, "input").inc()
        elif invocation.reason is Reason.RESULT_INVALID:
            validation_failures.labels(labels.tool, "output").inc()
            # Logged, because the caller cannot repair it.
            version = f"{labels.tool}@{labels.version}"
            self._log.error("result violated its schema", tool=version, invocation=invocation.invocation_id)

    def unexpected(self, cause: Exception, scanner: Scanner | None = None) -> None:
        """Log an unexpected exception."""
        self._log.error("unexpected exception", cause=cause, scanner=scanner)

    def _labels_of(self, invocation: Invocation) -> _Labels:
        version = invocation.tool or invocation.unavailable
        if version is None:
            return _UNKNOWN
        # A version that may not run has fewer labels.
        labels = self._labels.get((version.name, invocation.tool is None))
        if labels is None:
            if len(self._labels) >= _MAX_VERSIONS:
                return _OTHER
            labels = self._labels[version.name, invocation.tool is None] = _describe(version)
        return labels


def _describe(version: Tool | VersionIdentity) -> _Labels:
    if isinstance(version, Tool):
        return _Labels(version.qualified, version.version, version.mutation, version.timeout_class)
    name, number = split_version_name(version.name)
    return _Labels(name.qualified, number, "", "")


def _status(invocation: Invocation) -> str:
    """Return the final state, or `withheld` for a success whose record the log did not confirm."""
    if invocation.state is State.SUCCEEDED and invocation.reason is not None:
        return "withheld"
    return invocation.state
