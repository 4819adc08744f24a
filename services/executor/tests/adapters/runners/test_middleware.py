"""The wrappers around runners and sandboxes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from prometheus_client import REGISTRY

from libs.common.errors import MeshError, Reason
from libs.common.telemetry.log import Log
from services.executor.adapters.runners.middleware import ErrorMappingRunner, MetricsRunner, ThrottledSandbox
from services.executor.adapters.sandbox.bounds import Bounds, bounds_with
from services.executor.adapters.sandbox.port import Plan, SandboxedProcess
from services.executor.domain.run import RunRequest, RunResult
from services.executor.domain.run_errors import out_of_memory, sandbox_failed
from services.executor.domain.tool import Tool
from services.executor.tests.packing import python_tool, work


class Behaving:
    """A runner that does what the test says."""

    def __init__(self, behave: Callable[[], Awaitable[RunResult]]) -> None:
        self._behave = behave

    def sandbox_for(self, tool: Tool) -> str | None:
        return "process/x python kit@sha256:abc"

    def missing_for(self, tool: Tool) -> str:
        return ""

    def runs_inline(self, tool: Tool) -> bool:
        return False

    async def run(self, tool: Tool, work: RunRequest) -> RunResult:
        return await self._behave()


async def answers() -> RunResult:
    return RunResult(1)


async def runs_out() -> RunResult:
    raise out_of_memory()


async def surprises() -> RunResult:
    raise KeyError("secret")


async def waits() -> RunResult:
    await asyncio.Event().wait()
    raise AssertionError


def counted(ending: str) -> float:
    labels = {"runner": "test", "sandbox": "process/x", "ending": ending}
    return REGISTRY.get_sample_value("toolmesh_sandbox_runs_total", labels) or 0.0


@pytest.mark.parametrize(("behave", "ending"), [(answers, "succeeded"), (runs_out, "tool_out_of_memory")])
async def test_runs_are_counted_by_outcome(behave: Any, ending: str) -> None:
    before = counted(ending)
    try:
        await MetricsRunner(Behaving(behave), "test").run(python_tool("x/y:z"), work())
    except MeshError:
        assert ending != "succeeded"
    assert counted(ending) == before + 1


async def test_a_canceled_run_is_counted_as_canceled() -> None:
    before = counted("canceled")
    run = asyncio.create_task(MetricsRunner(Behaving(waits), "test").run(python_tool("x/y:z"), work()))
    await asyncio.sleep(0)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert counted("canceled") == before + 1


async def test_an_unexpected_exception_becomes_a_mesh_error(quiet: Log, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(MeshError) as caught:
        await ErrorMappingRunner(Behaving(surprises), quiet).run(python_tool("x/y:z"), work())
    assert caught.value.reason is Reason.EXECUTION_FAILED
    assert "secret" not in str(caught.value)
    assert "KeyError" in capfd.readouterr().out


async def test_why_a_sandbox_failed_is_logged_and_not_answered(quiet: Log, capfd: pytest.CaptureFixture[str]) -> None:
    async def cannot_start() -> RunResult:
        raise sandbox_failed("the sandbox could not be created") from FileNotFoundError("/opt/here")

    with pytest.raises(MeshError) as caught:
        await ErrorMappingRunner(Behaving(cannot_start), quiet).run(python_tool("x/y:z"), work())
    assert caught.value.reason is Reason.SANDBOX_UNAVAILABLE
    assert "/opt/here" not in str(caught.value)
    assert "/opt/here" in capfd.readouterr().out


class SlowSandbox:
    """A sandbox whose starts wait until they are let go."""

    name = "process/slow"

    def __init__(self) -> None:
        self.starting = self.most = 0
        self.go = asyncio.Event()

    def unavailable_reason(self) -> str:
        return "never"

    def bounds(self) -> Bounds:
        return bounds_with(())

    async def start(self, plan: Plan) -> SandboxedProcess:
        self.starting += 1
        self.most = max(self.most, self.starting)
        await self.go.wait()
        self.starting -= 1
        return None  # type: ignore[return-value]

    async def close(self) -> None:
        self.go.set()


async def test_concurrent_process_starts_are_bounded() -> None:
    sandbox = SlowSandbox()
    paced = ThrottledSandbox(sandbox, 2)
    assert (paced.name, paced.unavailable_reason()) == ("process/slow", "never")
    assert paced.bounds() == bounds_with(())
    starts = [asyncio.create_task(paced.start(Plan(("x",)))) for _ in range(6)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert sandbox.starting == 2
    await paced.close()
    await asyncio.gather(*starts)
    assert sandbox.most == 2
