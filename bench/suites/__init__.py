"""The suites: each takes the stage and yields its rows as they are measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bench.environment.mesh import Stage
from bench.report.measurement import Row
from bench.suites import (
    approvals,
    audit,
    authz,
    executor,
    floor,
    gateway,
    growth,
    jobs,
    peers,
    registry,
    sandbox_watch,
    soak,
    upstreams,
    workloads,
)

SUITES: dict[str, Callable[[Stage], Iterator[Row]]] = {
    "floor": floor.run,
    "gateway": gateway.run,
    "peers": peers.run,
    "workloads": workloads.run,
    "executor": executor.run,
    "sandbox-watch": sandbox_watch.run,
    "upstreams": upstreams.run,
    "jobs": jobs.run,
    "approvals": approvals.run,
    "authz": authz.run,
    "audit": audit.run,
    # Grows the mesh that all share, so it comes after those that want it small, and before the one that wants
    # many tools.
    "growth": growth.run,
    "registry": registry.run,
    "soak": soak.run,
}

# Takes as long as all others together, so it is run when it is asked for.
ONLY_WHEN_NAMED = frozenset({"soak"})

# What the chart shows, and as what.
CHARTED = {
    floor.BARE: "floor",
    floor.BEHIND_ENVOY: "floor",
    floor.BEHIND_ASGI: "floor",
    gateway.STRAIGHT: "ours",
    gateway.THROUGH_ENVOY: "ours",
    gateway.JSON: "ours",
    peers.MCP_SDK: "peer",
    peers.FASTMCP: "peer",
    peers.CONTEXTFORGE: "peer",
}
