"""Spending on a real store: exact under concurrency, exact at the edges of its windows, and counted once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis.asyncio

from libs.common.errors import MeshError, Reason
from libs.common.ids import new_id
from libs.common.testing.clock import ManualClock
from services.executor.adapters.budget.redis_budget import RedisBudget
from services.executor.domain.model import Reservation, SpendingLimit

SPENDER = """
import asyncio, json, sys
from libs.common.errors import MeshError
from libs.common.ids import new_id
from services.executor.adapters.budget.redis_budget import RedisBudget
from services.executor.domain.model import (Reservation, SpendingLimit)

async def main(url, bucket, calls):
    spending = RedisBudget(url)
    limits = (
        SpendingLimit(bucket + "/a", window=600, max_calls=70, max_cost_micros=330),
        SpendingLimit(bucket + "/b", max_calls=90),
    )

    async def one():
        reservation = Reservation(new_id(), limits, 5, 1.0, 30.0)
        while True:
            try:
                await spending.reserve(reservation)
                return 1
            except MeshError as error:
                # A busy machine may answer too late; a repeated request is counted once.
                if error.reason.name != "SERVICE_UNAVAILABLE":
                    return error.reason.name
    print(json.dumps(await asyncio.gather(*(one() for _ in range(calls)))))
    await spending.close()

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def spending(valkey_url: str, clock: ManualClock) -> AsyncIterator[RedisBudget]:
    made = RedisBudget(valkey_url, clock=clock)
    yield made
    await made.close()


@pytest.fixture
def bucket() -> str:
    """A bucket that no other test counts in."""
    return f"limit:{new_id()}"


def a_reservation(*limits: SpendingLimit, **changes: Any) -> Reservation:
    fields: dict[str, Any] = {"invocation_id": new_id(), "cost_micros": 0, "seconds": 1.0, "lease": 6.0, **changes}
    return Reservation(limits=limits, **fields)


async def refusal(spending: RedisBudget, reservation: Reservation) -> MeshError:
    with pytest.raises(MeshError) as caught:
        await spending.reserve(reservation)
    return caught.value


def test_several_processes_together_get_exactly_what_there_is(valkey_url: str, bucket: str) -> None:
    command = [sys.executable, "-c", SPENDER, valkey_url, bucket, "50"]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(4)]
    answers = [answer for process in processes for answer in json.loads(process.communicate(timeout=60)[0])]
    assert len(answers) == 200
    # 5 each out of 330: the cost is what runs out first.
    assert answers.count(1) == 66
    assert answers.count("RATE_LIMITED") == 134


async def test_a_refused_call_counts_in_none_of_its_buckets(spending: RedisBudget, bucket: str) -> None:
    wide, narrow = SpendingLimit(bucket + "/w", window=60, max_calls=2), SpendingLimit(bucket + "/n", max_calls=1)
    await spending.reserve(a_reservation(wide, narrow))
    assert (await refusal(spending, a_reservation(wide, narrow))).reason is Reason.BUDGET_EXHAUSTED
    await spending.reserve(a_reservation(wide))
    assert (await refusal(spending, a_reservation(wide))).reason is Reason.RATE_LIMITED


async def test_the_window_slides_and_says_exactly_when(spending: RedisBudget, clock: ManualClock, bucket: str) -> None:
    limit = SpendingLimit(bucket, window=10, max_calls=2, source="mine")
    await spending.reserve(a_reservation(limit))
    clock.advance(3)
    await spending.reserve(a_reservation(limit))
    clock.advance(1.5)
    error = await refusal(spending, a_reservation(limit))
    assert (error.reason, error.retry_after) == (Reason.RATE_LIMITED, 5.5)
    assert error.metadata == {"limit": "mine", "exceeded": "calls"}
    clock.advance(5.499999)
    assert (await refusal(spending, a_reservation(limit))).retry_after == 0.000001
    clock.advance(0.000001)
    await spending.reserve(a_reservation(limit))
    assert (await refusal(spending, a_reservation(limit))).retry_after == 3


async def test_cost_waits_for_as_many_calls_as_it_takes(spending: RedisBudget, clock: ManualClock, bucket: str) -> None:
    limit = SpendingLimit(bucket, window=10, max_cost_micros=10)
    for cost in (4, 0, 3, 3):
        await spending.reserve(a_reservation(limit, cost_micros=cost))
        clock.advance(1)
    error = await refusal(spending, a_reservation(limit, cost_micros=7))
    # The first 4 leave after 6 seconds more, the first 3 after 8: both are needed.
    assert (error.retry_after, error.metadata["exceeded"]) == (8, "cost")
    await spending.reserve(a_reservation(limit))
    clock.advance(8)
    await spending.reserve(a_reservation(limit, cost_micros=7))


async def test_what_never_fits_is_not_promised_for_sooner_than_a_window(spending: RedisBudget, bucket: str) -> None:
    assert (await refusal(spending, a_reservation(SpendingLimit(bucket, window=10, max_calls=0)))).retry_after == 10
    dear = a_reservation(SpendingLimit(bucket, window=10, max_cost_micros=1), cost_micros=2)
    assert (await refusal(spending, dear)).retry_after == 10


async def test_the_longest_wait_is_reported(spending: RedisBudget, clock: ManualClock, bucket: str) -> None:
    short = SpendingLimit(bucket + "/s", window=5, max_calls=1, source="short")
    long = SpendingLimit(bucket + "/l", window=50, max_calls=1, source="long")
    await spending.reserve(a_reservation(short, long))
    error = await refusal(spending, a_reservation(short, long))
    assert (error.retry_after, error.metadata["limit"]) == (50, "long")


async def test_what_is_under_way_ends_with_its_settlement_or_its_lease(
    spending: RedisBudget, clock: ManualClock, bucket: str
) -> None:
    limit = SpendingLimit(bucket, max_concurrent=2)
    ended, killed = a_reservation(limit, lease=6), a_reservation(limit, lease=6)
    await spending.reserve(ended)
    await spending.reserve(killed)
    error = await refusal(spending, a_reservation(limit))
    assert (error.reason, error.metadata["exceeded"]) == (Reason.RATE_LIMITED, "concurrent")
    assert 0 < (error.retry_after or 0) <= 1
    await spending.settle(ended, ran=0.5)
    await spending.reserve(a_reservation(limit, lease=100))
    assert (await refusal(spending, a_reservation(limit))).reason is Reason.RATE_LIMITED
    clock.advance(6)
    await spending.reserve(a_reservation(limit))


async def test_ancestors_pay_for_what_is_derived_from_them(spending: RedisBudget, bucket: str) -> None:
    root = SpendingLimit(f"token:{bucket}/root", max_calls=3, source="root")
    children = [SpendingLimit(f"token:{bucket}/{name}", max_calls=2) for name in "ab"]
    for child in (children[0], children[0], children[1]):
        await spending.reserve(a_reservation(root, child))
    error = await refusal(spending, a_reservation(root, children[1]))
    assert (error.reason, error.metadata["limit"], error.retry_after) == (Reason.BUDGET_EXHAUSTED, "root", None)


async def test_running_time_is_granted_as_far_as_it_lasts(spending: RedisBudget, bucket: str) -> None:
    limit = SpendingLimit(f"token:{bucket}", max_running=10)
    first = a_reservation(limit, seconds=8)
    assert await spending.reserve(first) == 8
    second = a_reservation(limit, seconds=8)
    # What the first may still need is not given away.
    assert await spending.reserve(second) == 2
    assert (await refusal(spending, a_reservation(limit, seconds=8))).reason is Reason.BUDGET_EXHAUSTED
    await spending.settle(first, ran=1)
    await spending.settle(second, ran=2)
    assert await spending.reserve(a_reservation(limit, seconds=8)) == 7


async def test_what_never_ran_is_given_back(spending: RedisBudget, bucket: str) -> None:
    window = SpendingLimit(bucket + "/w", window=60, max_calls=1, max_cost_micros=5)
    token = SpendingLimit(bucket + "/t", max_calls=1, max_cost_micros=5, max_running=1)
    for _ in range(3):
        unused = a_reservation(window, token, cost_micros=5)
        assert await spending.reserve(unused) == 1
        await spending.settle(unused, ran=None)
    used = a_reservation(window, token, cost_micros=5)
    await spending.reserve(used)
    await spending.settle(used, ran=0.1)
    assert (await refusal(spending, a_reservation(window))).reason is Reason.RATE_LIMITED
    assert (await refusal(spending, a_reservation(token))).reason is Reason.BUDGET_EXHAUSTED


async def test_a_preview_needs_a_call_of_its_token_and_takes_none(spending: RedisBudget, bucket: str) -> None:
    token = SpendingLimit(f"token:{bucket}", max_calls=1, max_running=10)
    for ran in (0.5, None, 0.5):
        preview = a_reservation(token, use=False)
        await spending.reserve(preview)
        await spending.settle(preview, ran=ran)
    last = a_reservation(token, seconds=10)
    # The previews' running time is spent; the call is not.
    assert await spending.reserve(last) == 9
    await spending.settle(last, ran=1)
    error = await refusal(spending, a_reservation(token, use=False))
    assert (error.reason, error.metadata["exceeded"]) == (Reason.BUDGET_EXHAUSTED, "calls")


async def test_a_preview_counts_in_rates_and_among_what_is_under_way(spending: RedisBudget, bucket: str) -> None:
    rate = SpendingLimit(bucket + "/w", window=60, max_calls=1)
    await spending.reserve(a_reservation(rate, use=False))
    assert (await refusal(spending, a_reservation(rate, use=False))).metadata["exceeded"] == "calls"
    places = SpendingLimit(bucket + "/c", max_concurrent=1)
    await spending.reserve(a_reservation(places, use=False))
    assert (await refusal(spending, a_reservation(places, use=False))).metadata["exceeded"] == "concurrent"


async def test_a_call_that_nothing_ran_for_takes_a_call_and_no_time(spending: RedisBudget, bucket: str) -> None:
    limits = (SpendingLimit(bucket, window=60, max_calls=2), SpendingLimit(f"token:{bucket}", max_running=1))
    for _ in range(2):
        spared = a_reservation(*limits, seconds=0.0)
        assert await spending.reserve(spared) == 0
        await spending.settle(spared, ran=0.0)
    assert (await refusal(spending, a_reservation(*limits))).reason is Reason.RATE_LIMITED
    assert await spending.reserve(a_reservation(limits[1])) == 1


async def test_repeating_changes_nothing(spending: RedisBudget, bucket: str) -> None:
    limits = (
        SpendingLimit(bucket + "/w", window=60, max_calls=2, max_cost_micros=6),
        SpendingLimit(bucket + "/t", max_calls=2, max_cost_micros=6, max_running=4),
        SpendingLimit(bucket + "/c", max_concurrent=2),
    )
    first = a_reservation(*limits, cost_micros=3)
    assert [await spending.reserve(first) for _ in range(3)] == [1, 1, 1]
    for _ in range(3):
        await spending.settle(first, ran=0.5)
    second = a_reservation(*limits, cost_micros=3)
    assert await spending.reserve(second) == 1
    assert (await refusal(spending, a_reservation(*limits))).reason is Reason.BUDGET_EXHAUSTED


async def test_a_reservation_that_comes_after_its_settlement_takes_nothing(spending: RedisBudget, bucket: str) -> None:
    limit = SpendingLimit(bucket, max_concurrent=1)
    late = a_reservation(limit)
    await spending.settle(late, ran=None)
    assert (await refusal(spending, late)).reason is Reason.SERVICE_UNAVAILABLE
    await spending.reserve(a_reservation(limit))


async def test_nothing_is_kept_longer_than_it_counts(spending: RedisBudget, valkey_url: str, bucket: str) -> None:
    limits = (
        SpendingLimit(bucket + "/w", window=60, max_calls=9, max_cost_micros=99, max_concurrent=9),
        SpendingLimit(bucket + "/t", max_calls=9, max_running=9),
    )
    reservation = a_reservation(*limits, cost_micros=1)
    await spending.reserve(reservation)
    await spending.settle(reservation, ran=0.5)
    async with redis.asyncio.Redis.from_url(valkey_url) as client:
        keys = [key async for key in client.scan_iter(match=f"*{bucket}*")]
        keys.append(f"toolmesh:spending:call:{reservation.invocation_id}".encode())
        # The window's calls and their sum, the token's totals, and the call itself; nothing is under way.
        assert len(keys) == 4
        assert all([await client.pttl(key) > 0 for key in keys])


async def test_a_store_that_forgot_the_script_learns_it_again(
    spending: RedisBudget, valkey_url: str, bucket: str
) -> None:
    limit = SpendingLimit(bucket, max_calls=2)
    await spending.reserve(a_reservation(limit))
    async with redis.asyncio.Redis.from_url(valkey_url) as client:
        await client.script_flush()
    await spending.reserve(a_reservation(limit))
    assert (await refusal(spending, a_reservation(limit))).reason is Reason.BUDGET_EXHAUSTED


async def test_by_the_clock_of_the_store(valkey_url: str, bucket: str) -> None:
    spending = RedisBudget(valkey_url)
    limit = SpendingLimit(bucket, window=60, max_calls=1)
    await spending.reserve(a_reservation(limit))
    assert 0 < ((await refusal(spending, a_reservation(limit))).retry_after or 0) <= 60
    await spending.close()


async def test_a_dead_store_is_reported_at_once(unused_port: int) -> None:
    spending = RedisBudget(f"redis://127.0.0.1:{unused_port}/0")
    error = await refusal(spending, a_reservation(SpendingLimit("limit:x", max_calls=1)))
    assert (error.reason, error.row.retryable) == (Reason.SERVICE_UNAVAILABLE, True)
    await spending.close()


@pytest.fixture
def unused_port() -> int:
    from tests.harness.stores import free_port

    return free_port()
