"""Limited calls: counted before they run, settled however they end, and only once for a key."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from services.executor.domain import errors
from services.executor.domain.model import Event, Source, SpendingLimit, Verdict
from services.executor.domain.preview.preview_invocation import PreviewInvocation
from services.executor.tests.fakes import World, never_ends
from services.executor.tests.samples import a_decision, a_request, a_tool, a_write_tool
from services.executor.tests.waiting import until

LIMITS = (
    SpendingLimit("limit:mine", window=60, max_calls=1),
    SpendingLimit("token:t", max_running=3, source="token:t"),
)


def a_limited_world(tool: Any = None, **changes: Any) -> World:
    world = World(tool, **changes)
    world.policy.answer = a_decision(limits=LIMITS, cost_micros=7)
    return world


async def test_a_call_without_limits_is_not_counted() -> None:
    world = World()
    await world.invoke.execute(a_request())
    assert (world.spending.reserved, world.spending.settled) == ([], [])


async def test_a_limited_call_is_counted_before_it_runs_and_settled_before_it_is_answered() -> None:
    world = a_limited_world()
    result = await world.invoke.execute(a_request())
    [reservation] = world.spending.reserved
    assert (reservation.invocation_id, reservation.limits) == (result.invocation_id, LIMITS)
    assert (reservation.cost_micros, reservation.seconds) == (7, 5.0)
    assert reservation.lease > reservation.seconds
    [(settled, ran)] = world.spending.settled
    assert settled is reservation
    assert ran is not None


@pytest.mark.parametrize(
    "refusal", [errors.rate_limited("mine", "calls", 4.5), errors.budget_exhausted("token:t", "calls")]
)
async def test_what_is_refused_does_not_run_and_has_nothing_to_settle(refusal: MeshError) -> None:
    world = a_limited_world()
    world.spending.failure = refusal
    error = await world.failure(a_request())
    assert (error.reason, error.retry_after) == (refusal.reason, refusal.retry_after)
    assert (world.runner.calls, world.spending.settled) == ([], [])
    assert [record.event for record in world.trail.durable] == [Event.PERMISSION_DECIDED, Event.FAILED]
    assert world.trail.durable[-1].reason is refusal.reason


async def test_a_denied_call_is_not_counted() -> None:
    world = World()
    world.policy.answer = a_decision(Verdict.DENY, limits=LIMITS)
    await world.failure(a_request())
    assert world.spending.reserved == []


async def test_an_uncounted_call_does_not_run_and_is_refused_in_time() -> None:
    world = a_limited_world()
    world.spending.waiting = asyncio.Event()
    async with asyncio.timeout(0.4):
        error = await world.failure(a_request(deadline=time.monotonic() + 0.4))
    assert (error.reason, error.row.retryable) == (Reason.SERVICE_UNAVAILABLE, True)
    assert world.runner.calls == []
    # Whether it was counted is not known, so it is given back.
    assert [ran for _, ran in world.spending.settled] == [None]


async def fails(arguments: dict[str, Any]) -> Any:
    raise errors.execution_failed("it broke")


@pytest.mark.parametrize(("behave", "reason"), [(fails, Reason.EXECUTION_FAILED), (never_ends, Reason.TOOL_TIMEOUT)])
async def test_a_failed_run_is_settled(behave: Any, reason: Reason) -> None:
    world = a_limited_world(a_tool(own_limit=0.05))
    world.runner.behave = behave
    assert (await world.failure(a_request())).reason is reason
    [(_, ran)] = world.spending.settled
    assert ran is not None


async def test_a_canceled_run_is_settled() -> None:
    world = a_limited_world()
    world.runner.behave = never_ends
    call = asyncio.create_task(world.invoke.execute(a_request()))
    await world.runner.started.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    [(_, ran)] = world.spending.settled
    assert ran is not None


async def test_what_a_store_did_not_hear_is_said_again_when_it_is_back() -> None:
    world = a_limited_world()
    world.spending.deaf = errors.budget_unavailable()
    await world.invoke.execute(a_request())
    assert world.watcher.seen.causes == [world.spending.deaf]
    world.spending.deaf = None
    await until(lambda: world.spending.settled)
    [(reservation, ran)] = world.spending.settled
    assert reservation is world.spending.reserved[0]
    assert ran is not None


async def test_a_run_ends_with_the_budget_of_its_token() -> None:
    world = a_limited_world()
    world.runner.behave = never_ends
    world.spending.seconds = 0.05
    error = await world.failure(a_request())
    assert (error.reason, error.metadata) == (Reason.BUDGET_EXHAUSTED, {"limit": "token:t", "exceeded": "running"})
    assert len(world.spending.settled) == 1


async def test_repeating_a_call_with_its_key_spends_once() -> None:
    world = a_limited_world(a_write_tool())
    first = await world.invoke.execute(a_request(idempotency_key="k"))
    again = await world.invoke.execute(a_request(idempotency_key="k"))
    assert (again.replayed, again.content) == (True, first.content)
    assert len(world.spending.reserved) == len(world.spending.settled) == 1


async def test_a_result_that_is_used_again_counts_as_a_call_that_took_nothing() -> None:
    world = a_limited_world(a_tool(cache_seconds=60.0))
    first, again = await world.invoke.execute(a_request()), await world.invoke.execute(a_request())
    assert (len(world.runner.calls), again.source) == (1, Source.CACHE)
    assert [each.invocation_id for each in world.spending.reserved] == [first.invocation_id, again.invocation_id]
    reservation = world.spending.reserved[1]
    assert (reservation.limits, reservation.cost_micros, reservation.seconds) == (LIMITS, 0, 0.0)
    assert reservation.use
    assert world.spending.settled[1] == (reservation, 0.0)


async def test_a_spent_budget_is_not_answered_from_an_earlier_result() -> None:
    world = a_limited_world(a_tool(cache_seconds=60.0))
    await world.invoke.execute(a_request())
    world.spending.failure = errors.budget_exhausted("token:t", "calls")
    assert (await world.failure(a_request())).reason is Reason.BUDGET_EXHAUSTED
    assert len(world.spending.settled) == 1


async def test_a_result_that_is_used_again_without_limits_is_not_counted() -> None:
    world = World(a_tool(cache_seconds=60.0))
    assert [(await world.invoke.execute(a_request())).source for _ in "ab"] == [Source.COMPUTED, Source.CACHE]
    assert world.spending.reserved == []


async def test_a_preview_is_counted_without_a_price_and_is_no_use() -> None:
    world = a_limited_world(a_tool(dry_run=True))
    await PreviewInvocation(world.pipeline, world.ports.previews).execute(a_request())
    [reservation] = world.spending.reserved
    assert (reservation.limits, reservation.cost_micros, reservation.seconds) == (LIMITS, 0, 5.0)
    assert not reservation.use
    [(settled, ran)] = world.spending.settled
    assert settled is reservation
    assert ran is not None


async def test_a_preview_beyond_a_limit_does_not_run() -> None:
    world = a_limited_world(a_tool(dry_run=True))
    world.spending.failure = errors.budget_exhausted("token:t", "calls")
    with pytest.raises(MeshError) as caught:
        await PreviewInvocation(world.pipeline, world.ports.previews).execute(a_request())
    assert (caught.value.reason, world.runner.calls) == (Reason.BUDGET_EXHAUSTED, [])


async def test_a_key_is_free_again_when_its_call_was_refused_by_a_limit() -> None:
    world = a_limited_world(a_write_tool())
    world.spending.failure = errors.rate_limited("mine", "calls", 1.0)
    assert (await world.failure(a_request(idempotency_key="k"))).reason is Reason.RATE_LIMITED
    world.spending.failure = None
    assert not (await world.invoke.execute(a_request(idempotency_key="k"))).replayed
