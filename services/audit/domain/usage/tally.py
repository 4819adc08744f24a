"""A running total of calls. Adding calls one by one, or merging totals in any order, comes to the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime

from services.audit.domain.usage.call import COMPLETED, ERRORS, INVALID_RESULT, Call, Outcome
from services.audit.domain.usage.sketch import Sketch


@dataclass(slots=True)
class Tally:
    """Everything that is kept of any number of calls."""

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
        self._widen_span(call.moment, call.moment)

    def merge(self, other: Tally) -> None:
        """Count everything that the other one has counted."""
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
        """All of them."""
        return self.outcomes.total()

    @property
    def errors(self) -> int:
        """Those that were answered with an error."""
        return sum(self.outcomes[outcome] for outcome in ERRORS)

    @property
    def completed(self) -> int:
        """Those that came to an end of their own."""
        return sum(self.outcomes[outcome] for outcome in COMPLETED)

    def success_rate(self) -> float | None:
        """Return the part of the completed calls that succeeded; None without any."""
        return self._share_of_completed(self.outcomes[Outcome.SUCCEEDED])

    def invalid_result_rate(self) -> float | None:
        """Return the part of the completed calls whose result broke its schema; None without any."""
        return self._share_of_completed(self.reasons[INVALID_RESULT])

    def within_rate(self, microseconds: int) -> float | None:
        """Return the part of the timed calls that took no longer; None without any. See Sketch.within for its error."""
        return self.latency.count_within(microseconds) / self.timed if self.timed else None

    def percentile_us(self, percent: int) -> float:
        """Return a percentile of the timed calls, at most 1 % off; never beyond the longest of them."""
        return min(self.latency.percentile(percent), float(self.latency_max_us))

    def _share_of_completed(self, count: int) -> float | None:
        return count / self.completed if self.completed else None

    def _widen_span(self, first: datetime, last: datetime) -> None:
        self.first = first if self.first is None else min(self.first, first)
        self.last = last if self.last is None else max(self.last, last)
