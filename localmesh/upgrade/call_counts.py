"""Counts calls and their failures from the metrics of Envoy and the executor, summed over pods and their restarts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

# Failures of the mesh. What a caller did wrong, what policy refused and what a tool failed at is none.
_FAILED_CODES = {"INTERNAL", "UNKNOWN", "UNAVAILABLE", "DATA_LOSS"}
_METHODS = "/toolmesh.executor.v1.ExecutorService/"
_CALLS = "toolmesh_calls_total"
_EDGE = "envoy_http_downstream_rq_xx"


@dataclass(frozen=True)
class CallCounts:
    """Calls that ended, and those of them that the mesh failed."""

    calls: float = 0
    failed: float = 0

    def __add__(self, other: CallCounts) -> CallCounts:
        return CallCounts(self.calls + other.calls, self.failed + other.failed)

    def since(self, before: CallCounts) -> CallCounts:
        """Return what came after an earlier count; one that is smaller began anew."""
        if self.calls < before.calls or self.failed < before.failed:
            return self
        return CallCounts(self.calls - before.calls, self.failed - before.failed)

    @property
    def error_rate(self) -> float:
        """The share of calls that failed; 0 if there were none."""
        return self.failed / self.calls if self.calls else 0.0


def count_calls(metrics: str) -> CallCounts:
    """Return the counts in the metrics of one pod, of Envoy or of the executor."""
    counts = CallCounts()
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            if (failed := _is_failed(sample.name, sample.labels)) is not None:
                counts += CallCounts(sample.value, sample.value if failed else 0)
    return counts


def _is_failed(name: str, labels: Mapping[str, str]) -> bool | None:
    """Return whether a series counts failures; None if it counts no calls of callers."""
    if name == _CALLS and labels["method"].startswith(_METHODS):
        return labels["code"] in _FAILED_CODES
    if name.startswith(_EDGE) and labels.get("envoy_http_conn_manager_prefix") == "ingress":
        return labels["envoy_response_code_class"] == "5"
    return None


class CallWindow:
    """Sums the counts of pods that come, go and start again."""

    def __init__(self, first: Mapping[str, CallCounts]) -> None:
        self._last, self._sum = dict(first), CallCounts()

    def add(self, counts: Mapping[str, CallCounts]) -> CallCounts:
        """Add the newest counts by pod and return all since the window began."""
        for pod, count in counts.items():
            self._sum += count.since(self._last.get(pod, CallCounts()))
            self._last[pod] = count
        return self._sum
