"""The Redis budget against a model that recomputes everything."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from libs.common.errors import MeshError
from libs.common.ids import new_id
from libs.common.testing.clock import ManualClock
from services.executor.adapters.budget.redis_budget import RedisBudget
from services.executor.domain.model import Reservation, SpendingLimit


@dataclass
class Taken:
    """A granted call: its time, its cost, and the end of its lease."""

    at: float
    cost: int
    leased_until: float
    granted: float
    use: bool = True
    ran: float | None = None
    given_back: bool = False
    settled: bool = False


@dataclass
class Model:
    """A bucket, counted the slow way."""

    limit: SpendingLimit
    taken: list[Taken] = field(default_factory=list)

    def refuses(self, now: float, cost: int) -> bool:
        counted = [one for one in self.taken if not one.given_back]
        if self.limit.window is not None:
            counted = [one for one in counted if now - one.at < self.limit.window]
        called = [one for one in counted if one.use or self.limit.window is not None]
        under_way = [one for one in self.taken if not one.settled and one.leased_until > now]
        return (
            _full(len(called) + 1, self.limit.max_calls)
            or _full(sum(one.cost for one in counted) + cost, self.limit.max_cost_micros)
            or _full(len(under_way) + 1, self.limit.max_concurrent)
            or (self.limit.max_running is not None and self.left() <= 0)
        )

    def left(self) -> float:
        if self.limit.max_running is None:
            return float("inf")
        spent = sum((one.ran or 0) if one.settled else one.granted for one in self.taken)
        return self.limit.max_running - spent


def _full(count: int, bound: int | None) -> bool:
    return bound is not None and count > bound


bound = st.none() | st.integers(0, 4)
window = st.builds(
    lambda seconds, calls, cost, concurrent: SpendingLimit("", seconds, calls, cost, concurrent),
    st.integers(1, 5),
    bound,
    bound,
    bound,
)
token = st.builds(
    lambda calls, cost, running: SpendingLimit(
        "", max_calls=calls, max_cost_micros=cost, max_running=running, expires_at=4e9
    ),
    bound,
    bound,
    bound,
)
step = st.one_of(
    st.tuples(st.just("wait"), st.integers(1, 3)),
    st.tuples(st.just("reserve"), st.integers(0, 3)),
    st.tuples(st.just("preview"), st.integers(0, 1)),
    st.tuples(st.just("settle"), st.integers(0, 5)),
    st.tuples(st.just("release"), st.integers(0, 5)),
)


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(limits=st.lists(window | token, min_size=1, max_size=3), steps=st.lists(step, min_size=5, max_size=30))
def test_the_budget_counts_like_the_model(
    valkey_url: str, limits: list[SpendingLimit], steps: list[tuple[str, int]]
) -> None:
    asyncio.run(_compare(valkey_url, limits, steps))


async def _compare(url: str, limits: list[SpendingLimit], steps: list[tuple[str, int]]) -> None:
    clock, run = ManualClock(), new_id()
    named = tuple(
        SpendingLimit(
            f"{run}/{index}",
            limit.window,
            limit.max_calls,
            limit.max_cost_micros,
            limit.max_concurrent,
            limit.max_running,
            limit.expires_at,
        )
        for index, limit in enumerate(limits)
    )
    models = [Model(limit) for limit in named]
    spending = RedisBudget(url, clock=clock)
    made: list[tuple[Reservation, Taken]] = []
    try:
        for verb, amount in steps:
            if verb == "wait":
                clock.advance(amount)
            elif verb in ("reserve", "preview"):
                asked = Reservation(new_id(), named, amount, 2.0, 4.0, verb == "reserve")
                await _reserve(spending, clock.monotonic(), asked, models, made)
            elif amount < len(made):
                reservation, taken = made.pop(amount)
                ran = float(amount % 3) if verb == "settle" else None
                await spending.settle(reservation, ran=ran)
                taken.settled, taken.ran, taken.given_back = True, ran, ran is None
    finally:
        await spending.close()


async def _reserve(
    spending: RedisBudget, now: float, asked: Reservation, models: list[Model], made: list[tuple[Reservation, Taken]]
) -> None:
    refused = [model for model in models if model.refuses(now, asked.cost_micros)]
    try:
        granted = await spending.reserve(asked)
    except MeshError:
        assert refused
        return
    assert not refused
    assert granted == min(asked.seconds, *(model.left() for model in models))
    taken = Taken(now, asked.cost_micros, now + asked.lease, granted, asked.use)
    made.append((asked, taken))
    for model in models:
        model.taken.append(taken)
