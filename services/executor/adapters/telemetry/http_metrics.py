"""Metrics of calls to external services."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

http_requests = Counter(
    "toolmesh_http_requests_total", "Requests to external services by outcome, each attempt counted.", ["outcome"]
)
http_retries = Counter("toolmesh_http_retries_total", "Requests to external services that were repeated.")
http_failovers = Counter(
    "toolmesh_http_failovers_total", "Requests that went on to the next endpoint of their service."
)
circuit_transitions = Counter("toolmesh_circuit_transitions_total", "Changes of circuit breakers.", ["state"])
circuit_refusals = Counter("toolmesh_circuit_refusals_total", "Requests that an open circuit breaker held back.")
rate_limit_refusals = Counter(
    "toolmesh_rate_limit_refusals_total", "Requests that were held back because the service limits our rate."
)
circuits_shared = Gauge(
    "toolmesh_circuits_shared", "1 while circuit breakers are shared with other executors, 0 while this one is alone."
)
