"""Mergeable quantiles."""

from __future__ import annotations

import pytest
from ddsketch import DDSketch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.audit.domain.usage.sketch import MAX_MICROSECONDS, RELATIVE_ACCURACY, Sketch

# No deadline: a loaded machine is slow, not wrong.
UNHURRIED = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
LATENCIES = st.lists(st.integers(0, MAX_MICROSECONDS) | st.integers(0, 200), max_size=60)
SOME = st.lists(st.integers(0, MAX_MICROSECONDS) | st.integers(0, 200), min_size=1, max_size=60)


def sketch_of(latencies: list[int]) -> Sketch:
    sketch = Sketch()
    for latency in latencies:
        sketch.add(latency)
    return sketch


def merged(*sketches: Sketch) -> Sketch:
    whole = Sketch()
    for sketch in sketches:
        whole.merge(sketch)
    return whole


@UNHURRIED
@given(SOME, st.sampled_from([0, 1, 50, 95, 99, 100]))
def test_a_percentile_is_within_one_percent_of_the_exact_one(latencies: list[int], percent: int) -> None:
    exact = next(
        each for each in sorted(latencies) if sum(one <= each for one in latencies) * 100 >= percent * len(latencies)
    )
    assert sketch_of(latencies).percentile(percent) == pytest.approx(exact, rel=RELATIVE_ACCURACY + 1e-9)


@UNHURRIED
@given(SOME)
def test_percentiles_are_those_of_the_published_implementation(latencies: list[int]) -> None:
    published = DDSketch(RELATIVE_ACCURACY)
    for latency in latencies:
        published.add(latency)
    # DDSketch counts ranks from 0 and rounds down; half a rank more is safe from rounding errors.
    rank = (len(latencies) + 1) // 2 - 1
    quantile = min(1.0, (rank + 0.5) / max(1, len(latencies) - 1))
    assert sketch_of(latencies).percentile(50) == pytest.approx(published.get_quantile_value(quantile))


@UNHURRIED
@given(LATENCIES, LATENCIES, LATENCIES)
def test_merging_is_associative_and_commutative_and_loses_nothing(a: list[int], b: list[int], c: list[int]) -> None:
    first, second, third = sketch_of(a), sketch_of(b), sketch_of(c)
    assert merged(merged(first, second), third) == merged(first, merged(second, third)) == merged(third, second, first)
    assert merged(first, second, third) == sketch_of(a + b + c)
    assert merged(first, second, third).count == len(a + b + c)


@UNHURRIED
@given(LATENCIES)
def test_the_stored_form_holds_everything_and_is_the_same_for_equal_sketches(latencies: list[int]) -> None:
    stored = sketch_of(latencies).encode()
    assert Sketch.decode(stored) == sketch_of(latencies)
    assert stored == sketch_of(latencies[::-1]).encode()


@pytest.mark.parametrize("count", [0, 1, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**60])
def test_counts_of_any_size_are_stored(count: int) -> None:
    sketch = Sketch([(3, count), (900, 1)] if count else [])
    assert Sketch.decode(sketch.encode()) == sketch


def test_the_stored_form_is_the_documented_one() -> None:
    assert sketch_of([0, 1, 1, MAX_MICROSECONDS]).encode().hex() == "01010300" + "0000" + "0100" + "9705" + "010201"


@pytest.mark.parametrize("stored", ["02010000", "01010100", "0101000000"])
def test_another_form_is_refused(stored: str) -> None:
    with pytest.raises(ValueError):
        Sketch.decode(bytes.fromhex(stored))


def test_an_empty_sketch_has_no_percentile() -> None:
    with pytest.raises(ValueError):
        Sketch().percentile(50)


@UNHURRIED
@given(LATENCIES, st.integers(0, 2 * MAX_MICROSECONDS))
def test_every_latency_within_a_limit_is_counted_and_none_far_beyond_it(latencies: list[int], limit: int) -> None:
    within = sketch_of(latencies).count_within(limit)
    assert sum(each <= limit for each in latencies) <= within <= sum(each <= limit * 1.021 for each in latencies)
