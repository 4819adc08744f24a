"""The built-in runner and the dispatch by kind."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.telemetry.log import Log
from services.executor.adapters.runners.builtin import BuiltinRunner
from services.executor.adapters.runners.dispatch import DispatchingRunner
from services.executor.builtin.arithmetic import Arithmetic
from services.executor.builtin.echo import Echo
from services.executor.tests.samples import a_manifest, a_tool, some_work

ECHO = a_tool(name="tools/core.echo/versions/1.0.0")
ARITHMETIC = a_tool(name="tools/core.arithmetic/versions/1.0.0")


class Faulty:
    """A tool with a defect."""

    manifest = a_manifest(tool_id="faulty")

    def call(self, arguments: dict[str, Any]) -> Any:
        raise KeyError("a secret inside")


@pytest.fixture
def runner() -> DispatchingRunner:
    silent = Log("executor", level="error", descriptor=2)
    return DispatchingRunner({"builtin": BuiltinRunner([Echo(), Arithmetic(), Faulty()], silent)})


async def test_a_builtin_tool_runs_in_process(runner: DispatchingRunner) -> None:
    assert runner.sandbox_for(ECHO) == "in_process"
    assert (await runner.run(ECHO, some_work(text="a"))).value == {"text": "a"}


@pytest.mark.parametrize(
    "tool",
    [
        a_tool(name="tools/core.echo/versions/2.0.0", entry_point="echo"),
        a_tool(name="tools/acme.echo/versions/1.0.0", entry_point="echo"),
        a_tool(name="tools/core.echo/versions/1.0.0", runner="mcp"),
    ],
)
def test_other_tools_cannot_run(runner: DispatchingRunner, tool: Any) -> None:
    assert runner.sandbox_for(tool) is None


async def test_a_mesh_error_of_a_tool_keeps_its_reason(runner: DispatchingRunner) -> None:
    with pytest.raises(MeshError) as caught:
        await runner.run(ARITHMETIC, some_work(expression="1/0"))
    assert caught.value.reason is Reason.EXECUTION_FAILED


async def test_an_unexpected_exception_hides_its_details(runner: DispatchingRunner) -> None:
    with pytest.raises(MeshError) as caught:
        await runner.run(a_tool(name="tools/core.faulty/versions/1.0.0"), some_work())
    assert caught.value.reason is Reason.EXECUTION_FAILED
    assert "secret" not in caught.value.message
