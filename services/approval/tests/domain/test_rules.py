"""The times of tickets."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from services.approval.domain.rules import MAX_LIFETIME, ApprovalRules

HOUR = timedelta(hours=1)


def test_fixed_steps_give_each_group_its_time() -> None:
    rules = ApprovalRules()
    assert rules.schedule(1) == (HOUR, ())
    assert rules.schedule(3) == (29 * HOUR, (HOUR, 5 * HOUR))


def test_a_fraction_divides_the_lifetime_over_the_chain() -> None:
    rules = ApprovalRules(fraction=0.5, timeout=4 * HOUR)
    assert rules.schedule(2) == (4 * HOUR, (HOUR,))
    assert ApprovalRules().schedule(2, 8 * HOUR) == (8 * HOUR, (2 * HOUR,))


@given(
    groups=st.integers(1, 64),
    steps=st.lists(st.timedeltas(timedelta(seconds=1), MAX_LIFETIME), min_size=1, max_size=16),
    fraction=st.none() | st.floats(0.001, 1.0),
    lifetime=st.none() | st.timedeltas(timedelta(seconds=1), MAX_LIFETIME),
)
def test_every_escalation_precedes_the_end(
    groups: int, steps: list[timedelta], fraction: float | None, lifetime: timedelta | None
) -> None:
    schedule = ApprovalRules(steps=tuple(steps), fraction=fraction).schedule(groups, lifetime)
    assert schedule.lifetime <= MAX_LIFETIME
    assert list(schedule.escalations) == sorted(schedule.escalations)
    assert all(offset < schedule.lifetime for offset in schedule.escalations)
    assert len(schedule.escalations) < groups
