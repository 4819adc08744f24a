"""The duty cycle of log followers: 5 % of the time, rising to 50 %."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from services.audit.domain.relay.follower_throttle import rest_seconds

seconds = st.floats(0, 1e6)


@settings(deadline=None)
@given(seconds)
def test_close_to_the_end_work_is_a_twentieth_of_the_time(worked: float) -> None:
    assert rest_seconds(worked, 0.0) == worked * 19


@settings(deadline=None)
@given(seconds, seconds, seconds)
def test_the_further_behind_the_shorter_the_rest(worked: float, one: float, other: float) -> None:
    near, far = sorted((one, other))
    assert rest_seconds(worked, far) <= rest_seconds(worked, near)


@settings(deadline=None)
@given(seconds, seconds)
def test_however_far_behind_half_of_the_time_is_left_to_others(worked: float, behind: float) -> None:
    assert rest_seconds(worked, behind) >= worked


def test_three_minutes_behind_a_follower_works_half_of_the_time() -> None:
    assert rest_seconds(2.0, 180.0) == 2.0
