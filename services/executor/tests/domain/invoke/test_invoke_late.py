"""Calls whose time is over: DEADLINE_EXCEEDED, and whether the tool ran. Calls that waited are decided again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from libs.common.errors import Reason
from libs.common.testing.clock import ManualClock
from services.executor.domain.model import ClaimOutcome, EncodedRecord, Event, Record, Verdict
from services.executor.domain.states import State
from services.executor.tests.fakes import World
from services.executor.tests.keys import a_claim
from services.executor.tests.samples import a_caller, a_decision, a_request, a_result, a_tool, a_write_tool
from services.executor.tests.waiting import until


def late_world(tool: Any, is_slow: Callable[[Record], bool]) -> World:
    """A world whose log confirms some records only after the caller's deadline."""
    clock = ManualClock()
    world = World(tool, clock=clock)

    def withhold(record: Record) -> bool:
        if is_slow(record):
            clock.advance(2.0)
        return is_slow(record)

    world.trail.withholds = withhold
    return world


def a_short_request(**changes: Any) -> Any:
    return a_request(deadline=1.0, caller=a_caller(authority_ends=1e12), **changes)


@pytest.mark.parametrize(
    ("tool", "key", "slow", "ran", "retryable"),
    [
        (a_tool(), "", Event.SUCCEEDED, "true", True),
        (a_write_tool(), "k", Event.SUCCEEDED, "true", True),
        (a_write_tool(key_required=False), "", Event.SUCCEEDED, "true", False),
        (a_write_tool(), "k", Event.PERMISSION_DECIDED, "false", True),
    ],
)
async def test_a_short_deadline_is_blamed_and_not_the_log(
    tool: Any, key: str, slow: Event, ran: str, retryable: bool
) -> None:
    world = late_world(tool, lambda record: record.event is slow)
    error = await world.failure(a_short_request(idempotency_key=key))
    assert (error.reason, error.metadata["tool_ran"], error.retryable) == (Reason.DEADLINE_EXCEEDED, ran, retryable)
    assert error.invocation_id
    assert len(world.runner.calls) == (ran == "true")


async def test_a_replay_that_is_recorded_too_late_is_late_too() -> None:
    world = late_world(a_write_tool(), lambda record: record.replayed)
    await world.invoke.execute(a_short_request(idempotency_key="k"))
    error = await world.failure(a_short_request(idempotency_key="k"))
    assert (error.reason, error.retryable) == (Reason.DEADLINE_EXCEEDED, True)


async def waited_call(world: World, meanwhile: Callable[[], None]) -> Any:
    """Make a call that waits for another one with its key, and change something meanwhile."""
    go_on = asyncio.Event()

    async def slow(arguments: dict[str, Any]) -> Any:
        await go_on.wait()
        return {"said": arguments["text"]}

    world.runner.behave = slow
    first = asyncio.ensure_future(world.invoke.execute(a_request(idempotency_key="k", deadline=None)))
    await world.runner.started.wait()
    second = asyncio.ensure_future(world.invoke.execute(a_request(idempotency_key="k", deadline=None)))
    await until(lambda: len(world.policy.asked) == 2 and world.claims._changed._waiters)  # type: ignore[attr-defined]
    meanwhile()
    go_on.set()
    await first
    return (await asyncio.gather(second, return_exceptions=True))[0]


async def test_a_call_that_waited_for_a_key_is_decided_again() -> None:
    world = World(a_write_tool())

    def forbid() -> None:
        world.policy.answer = a_decision(Verdict.DENY)

    error = await waited_call(world, forbid)
    assert error.row.category == "AUTHORIZATION_DENIED"
    assert (len(world.policy.asked), len(world.runner.calls)) == (3, 1)


async def test_a_decision_that_stays_the_same_is_not_recorded_again() -> None:
    for changes, records in (({}, 1), ({"policy_set_version": "policySets/9"}, 2)):
        world = World(a_write_tool())

        def replaced(world: World = world, changes: dict[str, Any] = changes) -> None:
            world.policy.answer = replace(a_decision(), name="decisions/other", **changes)

        result = await waited_call(world, replaced)
        assert result.replayed
        own = [record for record in world.trail.durable if f"records/{record.record_id}" in result.evidence[2:]]
        assert [record.event for record in own] == [Event.PERMISSION_DECIDED] * records + [Event.SUCCEEDED]


async def test_the_record_of_an_outcome_is_restored_before_it_is_replayed() -> None:
    world = World(a_write_tool())
    claim, record = a_claim(), EncodedRecord("record-1", b"fragment")
    settled = ClaimOutcome(claim.invocation_id, a_result(), unconfirmed=record)

    async def found(*anything: Any) -> ClaimOutcome:
        return settled

    world.claims.acquire = found  # type: ignore[assignment, method-assign]
    for _ in range(3):
        assert (await world.invoke.execute(a_request(idempotency_key="k"))).replayed
    await asyncio.gather(*world.pipeline.steps._tasks)
    assert (world.trail.restored, world.claims.confirmed) == ([record], ["record-1"])


async def test_the_outcome_is_settled_together_with_its_record() -> None:
    world = World(a_write_tool())
    result = await world.invoke.execute(a_request(idempotency_key="k"))
    [(_, settled)] = world.claims.held.values()
    assert settled is not None
    assert settled.record is not None
    assert result.evidence[-1] == f"records/{settled.record.record_id}"
    assert settled.record.state is State.SUCCEEDED
