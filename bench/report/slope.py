"""How fast something grows: the straight line that lies closest to what was seen."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import linear_regression

HOUR = 3600.0


def slope_per_hour(samples: Sequence[tuple[float, float]]) -> float:
    """Return by how much a value grows in an hour, from samples of (seconds, value); 0 where too few were taken to
    say."""
    if len(samples) < 2 or samples[0][0] == samples[-1][0]:
        return 0.0
    seconds, values = zip(*samples, strict=True)
    return linear_regression(seconds, values).slope * HOUR


def settled(samples: Sequence[tuple[float, float]], share: float = 0.25) -> list[tuple[float, float]]:
    """Return the samples without those of the first part of the time, in which caches and pools fill."""
    if not samples:
        return []
    begin, end = samples[0][0], samples[-1][0]
    return [sample for sample in samples if sample[0] >= begin + (end - begin) * share]
