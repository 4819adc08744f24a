"""Counting by hand says the same as the client library does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from libs.common.telemetry.fast_metrics import fast_counter, fast_gauge, fast_histogram

BOUNDS = (0.001, 0.01, 0.5, 1.0, 30.0)
LABELS = ["method", "code"]
SERIES = st.sampled_from([("/a", "OK"), ("/a", "INTERNAL"), ("/b", 'quo"ted')])


def told(registry: CollectorRegistry) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample, but for when a series began, which no test here reads."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in registry.collect()
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


@given(st.lists(st.tuples(SERIES, st.sampled_from(BOUNDS) | st.floats(0, 100))))
def test_values_fall_between_the_same_bounds(seen: list[tuple[tuple[str, str], float]]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    spread = fast_histogram("seconds", "How long.", LABELS, buckets=BOUNDS, registry=ours)
    histogram = Histogram("seconds", "How long.", LABELS, buckets=BOUNDS, registry=theirs)
    for labels, value in seen:
        spread.labels(*labels).observe(value)
        histogram.labels(*labels).observe(value)
    assert told(ours) == pytest.approx(told(theirs))


@given(st.lists(st.tuples(SERIES, st.integers(0, 5))))
def test_counts_and_levels_are_the_same(steps: list[tuple[tuple[str, str], int]]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    counted = fast_counter("calls_total", "Calls.", LABELS, registry=ours)
    level = fast_gauge("under_way", "Calls.", LABELS, registry=ours)
    counter = Counter("calls_total", "Calls.", LABELS, registry=theirs)
    gauge = Gauge("under_way", "Calls.", LABELS, registry=theirs)
    for labels, amount in steps:
        counted.labels(*labels).inc(amount)
        counter.labels(*labels).inc(amount)
        level.labels(*labels).dec(amount)
        gauge.labels(*labels).dec(amount)
        level.labels(*labels).inc()
        gauge.labels(*labels).inc()
    assert told(ours) == told(theirs)


def test_a_name_is_taken_once() -> None:
    registry = CollectorRegistry()
    fast_counter("calls_total", "Calls.", LABELS, registry=registry)
    with pytest.raises(ValueError, match="Duplicated"):
        Counter("calls_total", "Calls.", LABELS, registry=registry)


def test_labels_that_do_not_fit_are_refused() -> None:
    counted = fast_counter("calls_total", "Calls.", LABELS, registry=CollectorRegistry())
    with pytest.raises(ValueError, match="labels"):
        counted.labels("/a")
