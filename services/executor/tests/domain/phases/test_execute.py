"""The start of a sandbox is not the tool's time, and a call that never reached the tool leaves nothing in doubt."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from services.executor.domain.invocation import Invocation
from services.executor.domain.invoke.invoke import Invoke
from services.executor.domain.phases.pipeline import Pipeline
from services.executor.domain.run import RunRequest, RunResult
from services.executor.domain.states import State
from services.executor.domain.tool import Tool
from services.executor.tests.fakes import World
from services.executor.tests.samples import a_request, a_tool, a_write_tool


class StartingRunner:
    """A runner whose sandbox is ready when the test says so."""

    def __init__(self, *, launches: bool = False) -> None:
        self.ready = asyncio.Event()
        self.seconds: list[float] = []
        self._launches = launches

    def sandbox_for(self, tool: Tool) -> str | None:
        return "process/bubblewrap"

    def missing_for(self, tool: Tool) -> str:
        return ""

    def runs_inline(self, tool: Tool) -> bool:
        return False

    async def run(self, tool: Tool, work: RunRequest) -> RunResult:
        if self._launches:
            work.launch()
        await self.ready.wait()
        self.seconds.append(work.begin())
        return RunResult({"said": "hello"})


def a_world(tool: Tool, runner: StartingRunner, **limits: Any) -> World:
    world = World(tool)
    world.pipeline = Pipeline(world.ports, in_flight=world.in_flight, audit_wait=2.0, **limits)
    world.pipeline.preflight._runner = world.pipeline.execution._runner = runner
    world.invoke = Invoke(world.pipeline)
    return world


async def test_the_tool_has_its_whole_time_after_a_slow_start() -> None:
    runner = StartingRunner()
    world = a_world(a_tool(own_limit=0.5), runner)
    asyncio.get_running_loop().call_later(0.6, runner.ready.set)
    result = await world.invoke.execute(a_request())
    assert runner.seconds == [0.5]
    assert result.total >= 0.6
    latency = world.trail.durable[-1].latency
    assert latency is not None
    assert latency < result.total - 0.5


async def test_a_sandbox_that_is_not_ready_in_time_is_not_the_tools_failure() -> None:
    world = a_world(a_write_tool(), StartingRunner(), start_seconds=0.02)
    for deadline in (None, time.monotonic() + 60):
        error = await world.failure(a_request(idempotency_key="k", deadline=deadline))
        assert (error.reason, error.retry_after, error.row.retryable) == (Reason.SANDBOX_NOT_READY, 1.0, True)
        ended = world.trail.durable[-1]
        assert (ended.state, ended.attempt) == (State.BLOCKED, 0)


async def test_the_callers_deadline_ends_the_wait_and_frees_the_key() -> None:
    runner = StartingRunner()
    world = a_world(a_write_tool(), runner)
    error = await world.failure(a_request(idempotency_key="k", deadline=time.monotonic() + 0.05))
    assert error.reason is Reason.SANDBOX_NOT_READY
    runner.ready.set()
    assert not (await world.invoke.execute(a_request(idempotency_key="k"))).replayed


async def test_a_program_that_may_have_begun_leaves_its_key_in_doubt() -> None:
    runner = StartingRunner(launches=True)
    world = a_world(a_write_tool(), runner, start_seconds=0.02)
    error = await world.failure(a_request(idempotency_key="k"))
    assert (error.reason, error.metadata["outcome"]) == (Reason.SERVICE_UNAVAILABLE, "unknown")
    runner.ready.set()
    assert (await world.failure(a_request(idempotency_key="k"))).reason is Reason.UNKNOWN_OUTCOME


class PausingRunner(StartingRunner):
    """A runner whose tool waits for its caller."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.invocation: Invocation | None = None
        self._pause_seconds = seconds

    async def run(self, tool: Tool, work: RunRequest) -> RunResult:
        work.begin()
        assert self.invocation is not None
        assert self.invocation.pause_timer is not None
        with self.invocation.pause_timer():
            await asyncio.sleep(self._pause_seconds)
        return RunResult({"said": "hello"})


async def test_the_time_of_the_caller_is_not_the_tools() -> None:
    runner = PausingRunner(0.8)
    world = a_world(a_tool(own_limit=0.5), runner)
    runner.invocation = Invocation(a_request(), world.ports.clock, None)
    assert (await world.invoke.run(runner.invocation)).content == b'{"said":"hello"}'


async def test_the_deadline_holds_while_the_tool_waits_for_its_caller() -> None:
    runner = PausingRunner(60.0)
    world = a_world(a_tool(own_limit=30.0), runner)
    request = a_request(deadline=world.ports.clock.monotonic() + 0.5)
    runner.invocation = Invocation(request, world.ports.clock, None)
    with pytest.raises(MeshError) as ended:
        await world.invoke.run(runner.invocation)
    assert ended.value.reason is Reason.DEADLINE_EXCEEDED
