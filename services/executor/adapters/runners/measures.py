"""What operators watch of the sandboxes."""

from __future__ import annotations

from prometheus_client import Counter, Histogram

from libs.common.telemetry.metrics import SECONDS

starts = Counter(
    "toolmesh_sandbox_starts_total",
    "Runs by whether a process was there for them (warm) or had to be started (cold).",
    ["runner", "start"],
)
runs = Counter("toolmesh_sandbox_runs_total", "Runs that ended, by how.", ["runner", "sandbox", "ending"])
seconds = Histogram(
    "toolmesh_sandbox_run_seconds",
    "How long runs took, from asking to the last word.",
    ["runner", "sandbox"],
    buckets=SECONDS,
)
