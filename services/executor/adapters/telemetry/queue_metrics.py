"""Metrics of the scheduler's queue."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from libs.common.telemetry.metrics import SECONDS
from services.executor.domain.scheduling.scheduler import Scheduler
from services.executor.domain.tool import Tool

length = Gauge("toolmesh_executor_queue_length", "Calls that wait for a slot.")
waits = Histogram(
    "toolmesh_executor_queue_wait_seconds",
    "Waiting time of queued calls by outcome: began or left. Calls that did not wait are not counted.",
    ["outcome"],
    buckets=SECONDS,
)
refusals = Counter(
    "toolmesh_executor_queue_refusals_total",
    "Calls that were refused because the queue was full, by runner.",
    ["runner"],
)


class QueueMetrics:
    """Counts queued calls by runner. The audit records name the tools."""

    def __init__(self) -> None:
        self._began, self._left = waits.labels("began"), waits.labels("left")

    def waited(self, tool: Tool, seconds: float, *, began: bool) -> None:
        """Count a call that left the queue."""
        (self._began if began else self._left).observe(seconds)

    def refused(self, tool: Tool) -> None:
        """Count a refused call."""
        refusals.labels(tool.runner).inc()


def export_queue_length(scheduler: Scheduler) -> None:
    """Read the queue length from the scheduler whenever the gauge is scraped."""
    length.set_function(lambda: scheduler.length)
