"""Rates of callers: bursts, refilling, the time to wait, and bounded memory."""

from __future__ import annotations

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.testing.clock import ManualClock
from services.gateway.domain.rate_limits import Rate, RateLimits

RATE = Rate("tries", 2, 3)


def refused(limits: RateLimits, owner: str, count: int = 1, rate: Rate = RATE) -> float | None:
    """Return the time to wait, None where nothing has to."""
    try:
        limits.take(owner, rate, count)
    except MeshError as error:
        return error.retry_after
    return None


def test_a_caller_has_a_burst_and_then_a_rate() -> None:
    clock = ManualClock()
    limits = RateLimits(clock.monotonic)
    assert [refused(limits, "a") for _ in range(4)] == [None, None, None, pytest.approx(0.5)]
    # Others, and other rates of the same caller, have buckets of their own.
    assert refused(limits, "b") is None
    assert refused(limits, "a", rate=Rate("others", 2, 3)) is None
    clock.advance(0.5)
    assert [refused(limits, "a") for _ in range(2)] == [None, pytest.approx(0.5)]
    clock.advance(60)
    assert [refused(limits, "a") for _ in range(4)] == [None, None, None, pytest.approx(0.5)]


def test_a_refusal_names_its_rate() -> None:
    with pytest.raises(MeshError) as caught:
        RateLimits(ManualClock().monotonic).take("a", RATE, 4)
    assert (caught.value.reason, caught.value.metadata) == (Reason.RATE_LIMITED, {"limit": "tries"})


def test_several_are_counted_together_or_not_at_all() -> None:
    clock = ManualClock()
    limits = RateLimits(clock.monotonic)
    assert refused(limits, "a", 2) is None
    assert refused(limits, "a", 2) == pytest.approx(0.5)
    assert refused(limits, "a", 1) is None


def test_callers_that_were_quiet_longest_are_forgotten_first() -> None:
    limits = RateLimits(ManualClock().monotonic, max_buckets=2)
    assert refused(limits, "a", 2) is None
    assert refused(limits, "b", 3) is None
    assert refused(limits, "a", 1) is None
    assert refused(limits, "c", 3) is None
    assert refused(limits, "a") is not None
    assert refused(limits, "b", 3) is None
