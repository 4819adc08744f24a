"""Authority is taken back while a call is under way: the call ends, on record, and the caller hears why."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from services.executor.domain.errors import tool_unavailable
from services.executor.domain.model import Event, Status
from services.executor.domain.states import State
from services.executor.domain.tool import VersionIdentity
from services.executor.tests.fakes import World, never_ends
from services.executor.tests.samples import a_caller, a_request, a_tool, a_write_tool


def under_way(world: World, request: Any) -> asyncio.Task[Any]:
    return asyncio.create_task(world.invoke.execute(request))


async def refused(task: asyncio.Task[Any]) -> MeshError:
    with pytest.raises(MeshError) as caught:
        async with asyncio.timeout(10):
            await task
    return caught.value


async def test_a_running_call_ends_on_record_with_its_reason() -> None:
    world = World(a_tool(own_limit=60))
    world.runner.behave = never_ends
    task = under_way(world, a_request())
    await world.runner.started.wait()
    assert world.pipeline.supervisor.active.cancel_revoked(lambda caller: True) == 1
    error = await refused(task)
    assert error.reason is Reason.TOKEN_REVOKED
    assert error.invocation_id
    ended = world.trail.durable[-1]
    assert (ended.event, ended.state, ended.status) == (Event.CANCELED, State.CANCELED, Status.ERROR)
    assert ended.reason is Reason.TOKEN_REVOKED
    assert ended.previous_state is State.RUNNING
    assert world.in_flight.count == 0
    # The task that answered is no longer being canceled.
    assert task.cancelling() == 0


async def test_only_calls_whose_authority_is_gone_end() -> None:
    world = World(a_tool(own_limit=60))
    world.runner.behave = never_ends
    lost = under_way(world, a_request(caller=a_caller(token_id="lost")))
    kept = under_way(world, a_request(caller=a_caller(token_id="kept")))
    while len(world.runner.calls) < 2:  # noqa: ASYNC110  (the runner tells of the first only)
        await asyncio.sleep(0)
    assert world.pipeline.supervisor.active.cancel_revoked(lambda caller: caller.token_id == "lost") == 1
    assert world.pipeline.supervisor.active.cancel_revoked(lambda caller: caller.token_id == "lost") == 0
    assert (await refused(lost)).reason is Reason.TOKEN_REVOKED
    assert not kept.done()
    kept.cancel()
    await asyncio.wait([kept])


async def test_a_call_that_waits_for_its_decision_is_denied() -> None:
    world = World()
    world.policy.waiting = asyncio.Event()
    task = under_way(world, a_request())
    await world.policy.reached.wait()
    world.pipeline.supervisor.active.cancel_revoked(lambda caller: True)
    assert (await refused(task)).reason is Reason.TOKEN_REVOKED
    assert (world.trail.durable[-1].state, world.trail.durable[-1].reason) == (State.DENIED, Reason.TOKEN_REVOKED)
    assert world.runner.calls == []


async def test_an_unrepeatable_call_is_unknown_when_its_key_is_used_again() -> None:
    world = World(a_write_tool(own_limit=60))
    world.runner.behave = never_ends
    task = under_way(world, a_request(idempotency_key="key-1"))
    await world.runner.started.wait()
    world.pipeline.supervisor.active.cancel_revoked(lambda caller: True)
    assert (await refused(task)).reason is Reason.TOKEN_REVOKED
    error = await world.failure(a_request(idempotency_key="key-1"))
    assert error.reason is Reason.UNKNOWN_OUTCOME


async def test_a_caller_that_leaves_at_the_same_moment_is_not_answered() -> None:
    world = World(a_tool(own_limit=60))
    world.runner.behave = never_ends
    task = under_way(world, a_request())
    await world.runner.started.wait()
    world.pipeline.supervisor.active.cancel_revoked(lambda caller: True)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert world.trail.durable[-1].state is State.CANCELED


async def test_a_call_that_has_ended_is_left_alone() -> None:
    world = World()
    result = await world.invoke.execute(a_request())
    assert result.content
    assert world.pipeline.supervisor.active.cancel_revoked(lambda caller: True) == 0


async def test_a_running_call_of_a_withdrawn_tool_ends_on_record_and_others_go_on() -> None:
    withdrawn = a_tool(own_limit=60)
    world = World(withdrawn)
    world.runner.behave = never_ends
    task = under_way(world, a_request())
    await world.runner.started.wait()
    active = world.pipeline.supervisor.active
    other = VersionIdentity(withdrawn.name, "sha256:other")
    assert active.cancel_withdrawn(tool_unavailable(other, "quarantined", "suspicion")) == 0
    version = VersionIdentity(withdrawn.name, withdrawn.digest)
    assert active.cancel_withdrawn(tool_unavailable(version, "quarantined", "suspicion")) == 1
    error = await refused(task)
    assert (error.reason, error.metadata["state"]) == (Reason.TOOL_UNAVAILABLE, "quarantined")
    ended = world.trail.durable[-1]
    assert (ended.event, ended.state, ended.reason) == (Event.CANCELED, State.CANCELED, Reason.TOOL_UNAVAILABLE)
