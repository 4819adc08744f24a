"""Totals do not depend on the order of adding and merging."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.audit.domain.usage.call import INVALID_RESULT, Call, Outcome
from services.audit.domain.usage.tally import Tally
from services.audit.tests.usage_sample import NOON

# No deadline: a loaded machine is slow, not wrong.
UNHURRIED = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
CALLS = st.lists(
    st.builds(
        Call,
        tool=st.just("core.echo"),
        version=st.just("1.0.0"),
        tenant=st.just(""),
        subject=st.just(""),
        task=st.just(""),
        outcome=st.sampled_from(Outcome),
        event_time=st.integers(0, 10**6).map(lambda seconds: NOON + timedelta(seconds=seconds)),
        reason=st.sampled_from([0, 3401, 3402]),
        latency_us=st.none() | st.integers(0, 10**9),
        cost_micros=st.integers(-(2**63), 2**63 - 1),
    ),
    max_size=30,
)


def count_calls(calls: list[Call]) -> Tally:
    tally = Tally()
    for call in calls:
        tally.add(call)
    return tally


def merged(*tallies: Tally) -> Tally:
    whole = Tally()
    for tally in tallies:
        whole.merge(tally)
    return whole


def a_call(outcome: Outcome, **changes: object) -> Call:
    return Call("core.echo", "1.0.0", "", "", "", outcome, NOON, **changes)  # type: ignore[arg-type]


@UNHURRIED
@given(CALLS, CALLS, CALLS)
def test_merging_is_associative_and_the_same_as_counting_at_once(a: list[Call], b: list[Call], c: list[Call]) -> None:
    first, second, third = count_calls(a), count_calls(b), count_calls(c)
    assert merged(merged(first, second), third) == merged(first, merged(second, third)) == count_calls(a + b + c)
    assert merged(third, first, second) == count_calls(b + c + a)


@UNHURRIED
@given(CALLS)
def test_every_call_is_counted_once(calls: list[Call]) -> None:
    tally = count_calls(calls)
    assert tally.calls == len(calls) == sum(tally.outcomes.values())
    assert tally.cost_micros == sum(call.cost_micros for call in calls)
    assert tally.timed == tally.latency.count == sum(call.latency_us is not None for call in calls)


def test_rates_are_of_completed_calls() -> None:
    outcomes = [Outcome.SUCCEEDED] * 6 + [Outcome.FAILED, Outcome.TIMED_OUT]
    others = [Outcome.CANCELED, Outcome.NOT_STARTED, Outcome.REFUSED, Outcome.REPLAYED]
    tally = count_calls([a_call(outcome) for outcome in outcomes + others])
    tally.add(a_call(Outcome.FAILED, reason=INVALID_RESULT))
    assert tally.success_rate() == pytest.approx(6 / 9)
    assert tally.invalid_result_rate() == pytest.approx(1 / 9)
    assert tally.errors == 5


def test_without_calls_there_are_no_rates() -> None:
    tally = count_calls([a_call(Outcome.REFUSED)])
    assert (tally.success_rate(), tally.invalid_result_rate(), tally.within_rate(1)) == (None, None, None)


def test_a_percentile_is_never_beyond_the_longest_call() -> None:
    tally = count_calls([a_call(Outcome.SUCCEEDED, latency_us=1001)])
    assert tally.percentile_us(99) <= 1001
    assert tally.within_rate(1001) == 1
