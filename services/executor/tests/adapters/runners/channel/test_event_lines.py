"""What a program reports to its job, and how its job cancels it, in every sandbox of this machine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from libs.common.errors import Reason
from libs.common.telemetry.log import Log
from services.executor.adapters.runners.channel.cancellation import CancelGrace
from services.executor.adapters.runners.factory import RunnerConfig, SandboxedRunners
from services.executor.adapters.sandbox.port import Sandbox
from services.executor.domain.run_channel import InputQuestion, ProgressReport
from services.executor.tests.memory_channel import MemoryChannel, on
from services.executor.tests.packing import command_tool, confined, work
from services.executor.tests.running import PACKS, Running, own_tmp
from services.executor.tests.sandboxes import sandbox
from services.executor.tests.waiting import until

__all__ = ["own_tmp", "sandbox"]

LONG, NONE = 600.0, 0.0


class Programs:
    """Runs programs with graces of their own."""

    def __init__(self, sandbox: Sandbox, log: Path) -> None:
        self._sandbox, self._log = sandbox, log
        self._tier = sandbox.name.partition("/")[0]
        self._started: list[tuple[SandboxedRunners, int]] = []

    async def running(self, grace: CancelGrace) -> Running:
        descriptor = os.open(self._log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        runners = SandboxedRunners(
            {self._tier: self._sandbox},
            RunnerConfig(packs=[PACKS], cancel_grace=grace),
            Log("executor", descriptor=descriptor),
        )
        await runners.start()
        self._started.append((runners, descriptor))
        return Running(runners, self._log)

    def tool(self, order: str, **changes: Any) -> Any:
        supported = {"progress_supported": True, "cancellation_supported": True, **changes}
        return command_tool("pack:tricks/bin/report.py", order, confinement=confined(tier=self._tier), **supported)

    async def close(self) -> None:
        for runners, descriptor in self._started:
            await runners.stop()
            os.close(descriptor)


@pytest.fixture
async def programs(sandbox: Sandbox, tmp_path: Path, own_tmp: Path) -> AsyncIterator[Programs]:
    programs = Programs(sandbox, tmp_path / "log")
    yield programs
    await programs.close()


async def test_a_program_reports_asks_and_continues_from_its_state(programs: Programs) -> None:
    running, channel = await programs.running(CancelGrace()), MemoryChannel({"at": [1, "ü"]})
    channel.answers.put_nowait(True)
    value = await running.value(programs.tool("steps"), on(channel, work()))
    saved, answer = {"reply": 0, "saved": True}, {"reply": 7, "value": True}
    assert value == {"resumed": {"at": [1, "ü"]}, "saved": saved, "answer": answer}
    assert channel.reports == [ProgressReport("one", current_step=1, total_steps=2)]
    assert channel.lines == [("info", "a line"), ("warning", "a warning")]
    assert (channel.parts, channel.states) == ([{"part": 1}], [{"step": 1}])
    assert [(checkpoint.event, checkpoint.label) for checkpoint in channel.saved] == [("step", "first")]
    assert channel.questions == [InputQuestion("go on?", b'{"type": "boolean"}')]
    # A call that is no job has no further descriptors.
    assert await running.value(programs.tool("steps"), work()) == {"job": False}


async def test_lines_that_are_no_events_are_answered_and_left_out(programs: Programs) -> None:
    running, channel = await programs.running(CancelGrace()), MemoryChannel()
    run = on(channel, work())
    assert await running.value(programs.tool("malformed"), run) == [["error"]] * 5
    assert [report.message for report in channel.reports] == ["end"]
    assert len(run.notes.lines) == 10


@pytest.mark.parametrize(
    ("order", "grace", "supported", "how", "line"),
    [
        ("reads", CancelGrace(LONG, LONG), True, "cooperative", '{"cancel":"canceled by the test"}'),
        ("traps", CancelGrace(NONE, LONG), True, "terminated", "trapped"),
        ("traps", CancelGrace(LONG, LONG), False, "not_supported", "trapped"),
        ("ignores", CancelGrace(NONE, NONE), True, "killed", ""),
    ],
)
async def test_a_canceled_program_is_asked_terminated_and_killed(
    programs: Programs, order: str, grace: CancelGrace, supported: bool, how: str, line: str
) -> None:
    running, channel = await programs.running(grace), MemoryChannel()
    tool = programs.tool(order, cancellation_supported=supported)
    failing = asyncio.create_task(running.failure(tool, on(channel, work())))
    await until(lambda: channel.reports)
    channel.cancel()
    error = await failing
    assert (error.reason, error.metadata) == (Reason.INVOCATION_CANCELED, {"cancellation": how})
    assert channel.lines == ([("info", line)] if line else [])
