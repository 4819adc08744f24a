"""Metrics of the warm path: plain numbers that are counted up with every call and given a form only when somebody looks.

The client library takes a lock and checks its labels with every step, which costs a short call more than its own work does.
Here a child is looked up once and counting is one addition. Only the event loop's thread counts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Generic, TypeVar

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

C = TypeVar("C")


class Number:
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


class Spread:
    """How often values fell between which bounds."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value


class _Labelled(Generic[C]):
    """A metric with a child for each combination of labels that was ever asked for."""

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str],
        child: Callable[[], C],
        registry: CollectorRegistry = REGISTRY,
    ) -> None:
        self._name, self._documentation, self._labels = name, documentation, tuple(labels)
        self._child, self._children = child, dict[tuple[str, ...], C]()
        registry.register(self)  # type: ignore[arg-type]  # it asks for no more than `collect` and `describe`

    def labels(self, *values: str) -> C:
        """Return the child of these labels; keep it, for looking it up is what costs."""
        key = tuple(map(str, values))
        if len(key) != len(self._labels):
            raise ValueError(f"{self._name} has the labels {self._labels}")
        known = self._children.get(key)
        if known is None:
            known = self._children[key] = self._child()
        return known

    def describe(self) -> Iterator[Metric]:
        """Say which names it will use, so that no other metric takes them."""
        yield self._family()

    def collect(self) -> Iterator[Metric]:
        """Give the numbers their form."""
        family = self._family()
        for values, child in list(self._children.items()):
            self._add(family, values, child)
        yield family

    def _family(self) -> Any:
        raise NotImplementedError

    def _add(self, family: Any, values: tuple[str, ...], child: C) -> None:
        raise NotImplementedError


class Counts(_Labelled[Number]):
    """Numbers that only grow."""

    def __init__(self, name: str, documentation: str, labels: Sequence[str], **options: Any) -> None:
        super().__init__(name, documentation, labels, Number, **options)

    def _family(self) -> CounterMetricFamily:
        return CounterMetricFamily(self._name, self._documentation, labels=self._labels)

    def _add(self, family: CounterMetricFamily, values: tuple[str, ...], child: Number) -> None:
        family.add_metric(values, child.value)


class Levels(_Labelled[Number]):
    """Numbers that go up and down."""

    def __init__(self, name: str, documentation: str, labels: Sequence[str], **options: Any) -> None:
        super().__init__(name, documentation, labels, Number, **options)

    def _family(self) -> GaugeMetricFamily:
        return GaugeMetricFamily(self._name, self._documentation, labels=self._labels)

    def _add(self, family: GaugeMetricFamily, values: tuple[str, ...], child: Number) -> None:
        family.add_metric(values, child.value)


class Spreads(_Labelled[Spread]):
    """Values and how they are spread over bounds."""

    def __init__(
        self, name: str, documentation: str, labels: Sequence[str], *, buckets: Sequence[float], **options: Any
    ) -> None:
        self._names = [*(str(float(bound)) for bound in buckets), "+Inf"]
        super().__init__(name, documentation, labels, lambda: Spread(tuple(buckets)), **options)

    def _family(self) -> HistogramMetricFamily:
        return HistogramMetricFamily(self._name, self._documentation, labels=self._labels)

    def _add(self, family: HistogramMetricFamily, values: tuple[str, ...], child: Spread) -> None:
        reached = list(zip(self._names, accumulate(child.counts), strict=True))
        family.add_metric(values, buckets=reached, sum_value=child.total)
