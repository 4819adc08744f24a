"""Totals of calls. Adding calls one by one and merging totals in any order give the same result."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime

from services.audit.domain.usage.call import COMPLETED, ERRORS, INVALID_RESULT, Call, Outcome
from services.audit.domain.usage.sketch import Sketch


@dataclass(slots=True)
class Tally:
    """The totals of a set of calls."""

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    reasons: Counter[int] = field(default_factory=Counter)
    cost_micros: int = 0
    latency: Sketch = field(default_factory=Sketch)
    timed: int = 0
    latency_sum_us: int = 0
    latency_max_us: int = 0
    first: datetime | None = None
    last: datetime | None = None

    def add(self, call: Call) -> None:
        """Count one call."""
        self.outcomes[call.outcome] += 1
        if call.reason:
            self.reasons[call.reason] += 1
        self.cost_micros += call.cost_micros
        if call.latency_us is not None:
            self.latency.add(call.latency_us)
            self.timed += 1
            self.latency_sum_us += call.latency_us
            self.latency_max_us = max(self.latency_max_us, call.latency_us)
        self._widen_span(call.event_time, call.event_time)

    def merge(self, other: Tally) -> None:
        """Add the totals of another tally."""
        self.outcomes.update(other.outcomes)
        self.reasons.update(other.reasons)
        self.cost_micros += other.cost_micros
        self.latency.merge(other.latency)
        self.timed += other.timed
        self.latency_sum_us += other.latency_sum_us
        self.latency_max_us = max(self.latency_max_us, other.latency_max_us)
        if other.first is not None and other.last is not None:
            self._widen_span(other.first, other.last)

    @property
    def calls(self) -> int:
        """Number of calls."""
        return self.outcomes.total()

    @property
    def errors(self) -> int:
        """Number of calls that returned an error."""
        return sum(self.outcomes[outcome] for outcome in ERRORS)

    @property
    def completed(self) -> int:
        """Number of completed calls."""
        return sum(self.outcomes[outcome] for outcome in COMPLETED)

    def success_rate(self) -> float | None:
        """Return the share of completed calls that succeeded; None without any."""
        return self._share_of_completed(self.outcomes[Outcome.SUCCEEDED])

    def invalid_result_rate(self) -> float | None:
        """Return the share of completed calls whose result violated its schema; None without any."""
        return self._share_of_completed(self.reasons[INVALID_RESULT])

    def within_rate(self, microseconds: int) -> float | None:
        """Return the share of timed calls that took at most this long; None without any. See Sketch.count_within for
        its error."""
        return self.latency.count_within(microseconds) / self.timed if self.timed else None

    def percentile_us(self, percent: int) -> float:
        """Return a percentile of the timed calls with an error of at most 1 %, capped at the longest call."""
        return min(self.latency.percentile(percent), float(self.latency_max_us))

    def _share_of_completed(self, count: int) -> float | None:
        return count / self.completed if self.completed else None

    def _widen_span(self, first: datetime, last: datetime) -> None:
        self.first = first if self.first is None else min(self.first, first)
        self.last = last if self.last is None else max(self.last, last)
