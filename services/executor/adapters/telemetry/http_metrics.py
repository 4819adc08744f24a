"""Metrics of calls to external services."""

from __future__ import annotations

from prometheus_client import Counter

http_requests = Counter(
    "toolmesh_http_requests_total", "Requests to external services by outcome, each attempt counted.", ["outcome"]
)
http_retries = Counter("toolmesh_http_retries_total", "Requests to external services that were repeated.")
