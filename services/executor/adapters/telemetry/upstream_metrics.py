"""Metrics of upstreams. Their names are in the registry, not here: an executor may have hundreds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

from prometheus_client import Gauge


class SeenState(StrEnum):
    """What an executor last saw of an upstream."""

    PENDING = "pending"
    READY = "ready"
    UNAVAILABLE = "unavailable"


upstreams = Gauge(
    "toolmesh_upstreams", "Upstreams by state (pending, ready, unavailable), as this executor last saw them.", ["state"]
)


def show_states(states: Iterable[SeenState]) -> None:
    """Replace what is shown by the states of all upstreams."""
    counts = Counter(states)
    for state in SeenState:
        upstreams.labels(state.value).set(counts[state])
