"""Retries: exponential, jittered, within the call's time, its attempts and the budget."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.executor.domain.resilience.retry import RetryBudget, RetryPolicy, RetrySchedule


@given(st.integers(1, 10), st.floats(0, 1))
def test_a_delay_is_at_most_its_exponential_bound(attempt: int, chance: float) -> None:
    policy = RetryPolicy(longest_delay=5.0)
    assert 0 <= policy.delay(attempt, lambda: chance) <= min(5.0, 0.1 * 2 ** (attempt - 1))


def test_attempts_end_with_the_policy() -> None:
    schedule = RetrySchedule(RetryPolicy(max_attempts=3), RetryBudget(), until=100.0)
    delays = [schedule.next_delay(0.0, safe=True, asked=None) for _ in range(3)]
    assert [delay is None for delay in delays] == [False, False, True]


def test_nothing_is_repeated_without_a_policy_or_safety() -> None:
    assert RetrySchedule(None, RetryBudget(), until=100.0).next_delay(0.0, safe=True, asked=None) is None
    assert RetrySchedule(RetryPolicy(), RetryBudget(), until=100.0).next_delay(0.0, safe=False, asked=None) is None


def test_a_delay_that_the_service_asks_for_is_never_shortened_and_never_exceeds_the_time() -> None:
    schedule = RetrySchedule(RetryPolicy(), RetryBudget(), until=10.0)
    delay = schedule.next_delay(0.0, safe=True, asked=5.0)
    assert delay is not None
    assert delay >= 5.0
    assert schedule.next_delay(6.0, safe=True, asked=5.0) is None


def test_all_calls_share_a_budget_of_a_fifth_beyond_its_stock() -> None:
    budget, sent = RetryBudget(), 0
    for _ in range(1000):
        budget.earn()
        schedule = RetrySchedule(RetryPolicy(max_attempts=10), budget, until=1e9)
        while schedule.next_delay(0.0, safe=True, asked=None) is not None:
            sent += 1
    assert 200 <= sent <= 210
