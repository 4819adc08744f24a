"""Fast metrics for the warm path: plain numbers that are formatted only when they are scraped.

The client library takes a lock and checks labels with every step, which costs a short call more than its own work. Here
a child is looked up once, and counting is one addition. Only the event loop's thread counts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Generic, TypeVar

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

C = TypeVar("C")


class FastCounter:
    """One number of a metric."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        """Count up."""
        self.value += amount

    def dec(self, amount: float = 1.0) -> None:
        """Count down."""
        self.value -= amount


class FastHistogram:
    """A histogram of observed values."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value


Form = Callable[[str, str, Sequence[str], Iterable[tuple[tuple[str, ...], C]]], Metric]
"""Formats a metric with this name, documentation and labels from the values of its children."""


class LabelledMetric(Generic[C]):
    """A metric with a child for each used combination of labels."""

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str],
        *,
        child: Callable[[], C],
        form: Form[C],
        registry: CollectorRegistry,
    ) -> None:
        self._name, self._documentation, self._labels = name, documentation, tuple(labels)
        self._child, self._form, self._children = child, form, dict[tuple[str, ...], C]()
        registry.register(self)  # type: ignore[arg-type]  # it asks for no more than `collect` and `describe`

    def labels(self, *values: str) -> C:
        """Return the child of these labels. Keep it: the lookup is the expensive part."""
        key = tuple(map(str, values))
        if len(key) != len(self._labels):
            raise ValueError(f"{self._name} has the labels {self._labels}")
        known = self._children.get(key)
        if known is None:
            known = self._children[key] = self._child()
        return known

    def describe(self) -> Iterator[Metric]:
        """Yield the metric's names, so that no other metric takes them."""
        yield self._form(self._name, self._documentation, self._labels, ())

    def collect(self) -> Iterator[Metric]:
        """Yield the formatted metric."""
        yield self._form(self._name, self._documentation, self._labels, list(self._children.items()))


def fast_counter(
    name: str, documentation: str, labels: Sequence[str], *, registry: CollectorRegistry = REGISTRY
) -> LabelledMetric[FastCounter]:
    """Declare a counter."""
    form = partial(_numbers, CounterMetricFamily)
    return LabelledMetric(name, documentation, labels, child=FastCounter, form=form, registry=registry)


def fast_gauge(
    name: str, documentation: str, labels: Sequence[str], *, registry: CollectorRegistry = REGISTRY
) -> LabelledMetric[FastCounter]:
    """Declare a gauge."""
    form = partial(_numbers, GaugeMetricFamily)
    return LabelledMetric(name, documentation, labels, child=FastCounter, form=form, registry=registry)


def fast_histogram(
    name: str,
    documentation: str,
    labels: Sequence[str],
    *,
    buckets: Sequence[float],
    registry: CollectorRegistry = REGISTRY,
) -> LabelledMetric[FastHistogram]:
    """Declare a histogram."""
    child = partial(FastHistogram, tuple(buckets))
    return LabelledMetric(name, documentation, labels, child=child, form=partial(_spread, buckets), registry=registry)


def _numbers(
    kind: type[CounterMetricFamily] | type[GaugeMetricFamily],
    name: str,
    documentation: str,
    labels: Sequence[str],
    children: Iterable[tuple[tuple[str, ...], FastCounter]],
) -> Metric:
    family = kind(name, documentation, labels=labels)
    for values, child in children:
        family.add_metric(values, child.value)
    return family


def _spread(
    bounds: Sequence[float],
    name: str,
    documentation: str,
    labels: Sequence[str],
    children: Iterable[tuple[tuple[str, ...], FastHistogram]],
) -> Metric:
    family = HistogramMetricFamily(name, documentation, labels=labels)
    names = [*(str(float(bound)) for bound in bounds), "+Inf"]
    for values, child in children:
        reached = list(zip(names, accumulate(child.counts), strict=True))
        family.add_metric(values, buckets=reached, sum_value=child.total)
    return family
