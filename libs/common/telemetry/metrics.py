"""The metrics of every process. Each service declares its own beside these."""

from __future__ import annotations

from libs.common.telemetry.fast_metrics import fast_counter, fast_gauge, fast_histogram

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 300.0)

calls_total = fast_counter("toolmesh_calls_total", "Calls that ended, by method and status.", ["method", "code"])
call_seconds = fast_histogram("toolmesh_call_seconds", "How long calls took.", ["method"], buckets=SECONDS)
calls_in_flight = fast_gauge("toolmesh_calls_in_flight", "Calls under way.", ["method"])
peer_calls_total = fast_counter(
    "toolmesh_peer_calls_total", "Calls made to peers, by method and status.", ["method", "code"]
)
