"""How long calls wait for their turn, for operators."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from libs.common.telemetry.metrics import SECONDS
from services.executor.domain.scheduling.scheduler import Scheduler
from services.executor.domain.tool import Tool

length = Gauge("toolmesh_executor_queue_length", "Calls that wait for their turn.")
waits = Histogram(
    "toolmesh_executor_queue_wait_seconds",
    "How long calls waited for their turn, by what came of it: began, or left. Calls that did not wait are not counted.",
    ["outcome"],
    buckets=SECONDS,
)
refusals = Counter(
    "toolmesh_executor_queue_refusals_total", "Calls for which there was no room to wait, by runner.", ["runner"]
)


class QueueMetrics:
    """Counts the calls that wait. By runner and not by tool: whoever needs to know which finds it in the records."""

    def __init__(self) -> None:
        self._began, self._left = waits.labels("began"), waits.labels("left")

    def waited(self, tool: Tool, seconds: float, *, began: bool) -> None:
        """Count a call that no longer waits."""
        (self._began if began else self._left).observe(seconds)

    def refused(self, tool: Tool) -> None:
        """Count a call that was turned away."""
        refusals.labels(tool.runner).inc()


def show_length(scheduler: Scheduler) -> None:
    """Have the gauge ask the scheduler whenever somebody looks at it."""
    length.set_function(lambda: scheduler.length)
