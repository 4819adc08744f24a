"""Groups over real calls: a call that is stopped, or never begins, leaves its evidence like any other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.runtime.clock import SystemClock
from services.executor.domain.invoke_group.invoke_group import GroupOutcome, InvokeGroup
from services.executor.domain.invoke_group.plan import GroupCall
from services.executor.domain.model import Caller, Event
from services.executor.domain.run import RunResult
from services.executor.domain.scheduling.heavy_work import HeavyWork
from services.executor.domain.states import State
from services.executor.domain.tool import Placement, SiblingFailure
from services.executor.tests.fakes import World
from services.executor.tests.samples import a_request, a_tool, a_write_tool
from services.executor.tests.waiting import until

SAFE = Placement(concurrency_safe=True)


def call(text: str, *depends_on: int, strict: bool = False, **changes: Any) -> GroupCall:
    policy = SiblingFailure.CANCEL_SIBLINGS if strict else None
    return GroupCall(a_request(arguments=f'{{"text":"{text}"}}'.encode(), **changes), depends_on, policy)


async def run(
    world: World, *calls: GroupCall, revoked: Callable[[Caller], bool] = lambda caller: False
) -> tuple[GroupOutcome, ...]:
    return await InvokeGroup(world.invoke, world.tools, SystemClock(), HeavyWork(), revoked=revoked).execute(calls)


def world_in_which(tool: Any = None) -> tuple[World, asyncio.Event]:
    """A world in which `waits` never ends, and `fails` fails once a call waits."""
    world, waiting = World(tool or a_tool(placement=SAFE)), asyncio.Event()

    async def behave(arguments: dict[str, Any]) -> Any:
        if arguments["text"] == "waits":
            waiting.set()
            await asyncio.Event().wait()
        if arguments["text"] == "fails":
            await waiting.wait()
            return {"said": 7}
        return {"said": arguments["text"]}

    world.runner.behave = behave
    return world, waiting


async def test_every_call_of_a_group_is_recorded_like_a_call_of_its_own() -> None:
    world, _ = world_in_which()
    one, other = await run(world, call("a"), call("b", 0))
    assert one.result is not None
    assert other.result is not None
    assert [one.result.content, other.result.content] == [b'{"said":"a"}', b'{"said":"b"}']
    ended = [record for record in world.trail.durable if record.event is Event.SUCCEEDED]
    assert [record.invocation_id for record in ended] == [one.result.invocation_id, other.result.invocation_id]


async def test_a_call_that_is_stopped_for_a_sibling_ends_on_record_with_that_reason() -> None:
    world, _ = world_in_which()
    _, stopped, never = await run(world, call("fails", strict=True), call("waits"), call("later", 1))
    for outcome, previous in ((stopped, State.RUNNING), (never, State.PLANNED)):
        assert outcome.error is not None
        assert outcome.error.reason is Reason.SIBLING_CANCELED
        [record] = [
            each
            for each in world.trail.durable
            if each.invocation_id == outcome.error.invocation_id and each.event is Event.CANCELED
        ]
        assert (record.reason, record.state, record.previous_state) == (
            Reason.SIBLING_CANCELED,
            State.CANCELED,
            previous,
        )
    assert world.runner.stopped.is_set()
    assert world.in_flight.count == 0


async def test_a_stopped_call_whose_effect_may_have_happened_leaves_its_key_in_doubt() -> None:
    world, _ = world_in_which(a_write_tool(placement=SAFE))
    request = call("waits", idempotency_key="k1")
    await run(world, call("fails", strict=True, idempotency_key="k2"), request)
    error = await world.failure(request.request)
    assert error.reason is Reason.UNKNOWN_OUTCOME


async def test_a_caller_that_leaves_is_on_record_as_such() -> None:
    world, waiting = world_in_which()
    task = asyncio.ensure_future(run(world, call("waits"), call("later", 0)))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    never, ended = sorted(
        (record for record in world.trail.durable if record.event is Event.CANCELED), key=lambda record: record.attempt
    )
    assert (never.reason, never.previous_state) == (Reason.INVOCATION_CANCELED, State.PLANNED)
    assert (ended.reason, ended.previous_state) == (Reason.INVOCATION_CANCELED, State.RUNNING)


async def test_what_never_began_when_time_was_over_is_on_record_as_late() -> None:
    world, waiting = world_in_which()
    task = asyncio.ensure_future(run(world, call("waits"), call("later", 0, deadline=SystemClock().monotonic())))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    [late] = [record for record in world.trail.durable if record.previous_state is State.PLANNED]
    assert (late.event, late.reason) == (Event.TIMED_OUT, Reason.DEADLINE_EXCEEDED)


async def test_a_call_that_had_not_begun_when_its_authority_was_taken_back_is_denied_on_record() -> None:
    world, waiting = world_in_which()
    gone = False
    task = asyncio.ensure_future(run(world, call("waits"), call("later", 0), revoked=lambda caller: gone))
    await waiting.wait()
    gone = True
    world.pipeline.supervisor.active.cancel_revoked(lambda caller: gone)
    outcomes = await task
    assert [outcome.error and outcome.error.reason for outcome in outcomes] == [Reason.TOKEN_REVOKED] * 2
    [denied] = [record for record in world.trail.durable if record.previous_state is State.PLANNED]
    assert (denied.state, denied.reason) == (State.DENIED, Reason.TOKEN_REVOKED)
    assert len(world.runner.calls) == 1


async def test_a_call_whose_effects_are_becoming_real_is_answered_with_what_became_of_it() -> None:
    world, keeping, kept = World(a_write_tool(placement=SAFE)), asyncio.Event(), asyncio.Event()

    async def keep() -> None:
        keeping.set()
        await kept.wait()

    async def ran(tool: Any, work: Any) -> RunResult:
        work.begin()
        if work.arguments["text"] == "fails":
            await keeping.wait()
            raise MeshError(Reason.EXECUTION_FAILED)
        return RunResult({"said": "x"}, commit=keep)

    world.runner.run = ran  # type: ignore[method-assign]
    fails, writes = call("fails", strict=True, idempotency_key="k1"), call("writes", idempotency_key="k2")
    task = asyncio.ensure_future(run(world, fails, writes))
    await until(lambda: any(record.reason is Reason.EXECUTION_FAILED for record in world.trail.durable))
    kept.set()
    failed, wrote = await task
    assert failed.error is not None
    assert failed.error.reason is Reason.EXECUTION_FAILED
    assert wrote.result is not None
    [ended] = [record for record in world.trail.durable if record.event is Event.SUCCEEDED]
    assert ended.invocation_id == wrote.result.invocation_id


async def test_a_group_whose_time_is_over_has_an_outcome_for_every_call() -> None:
    world, _ = world_in_which()
    deadline = SystemClock().monotonic() + 0.2
    outcomes = await run(world, call("a"), call("waits", deadline=deadline), call("later", 1, deadline=deadline))
    assert outcomes[0].result is not None
    reasons = [outcome.error.reason for outcome in outcomes[1:] if outcome.error]
    assert reasons == [Reason.DEADLINE_EXCEEDED, Reason.SIBLING_CANCELED]
