"""What a function in a worker reports to its job: real processes in real sandboxes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from libs.common.errors import MeshError, Reason
from services.executor.domain.run import LogLine, LogSource
from services.executor.domain.run_channel import InputQuestion, ProgressReport
from services.executor.tests.memory_channel import MemoryChannel, job_tool, on
from services.executor.tests.packing import work
from services.executor.tests.running import Running, own_tmp, running, starting
from services.executor.tests.waiting import until

__all__ = ["own_tmp", "running", "starting"]


async def test_a_tool_reports_to_its_job_and_continues_from_its_state(running: Running) -> None:
    tool, channel = job_tool("steps"), MemoryChannel()
    run = on(channel, work(steps=3))
    first = await running.value(tool, run)
    assert first["done"] == [0, 1, 2]
    assert channel.reports[0] == ProgressReport("one", 100 / 3, 1, 3)
    assert [report.current_step for report in channel.reports] == [1, 2, 3]
    assert channel.lines == [("warning", f"step {step}") for step in range(3)]
    assert channel.parts == [{"step": step} for step in range(3)]
    assert channel.states == [{"done": [0]}, {"done": [0, 1]}, {"done": [0, 1, 2]}]
    assert [(saved.event, saved.label) for saved in channel.saved] == [("step", ""), ("step", ""), ("step", "last")]
    assert run.notes.lines == [LogLine(LogSource.LOG, f"step {step}") for step in range(3)]
    # The worker is used again, and the next call has nothing of the first one's state.
    resumed = MemoryChannel({"done": [7, 8]})
    resumed.save_error = MeshError(Reason.CHECKPOINT_FAILED)
    assert await running.value(tool, on(resumed, work(steps=3))) == {"done": [7, 8, 2], "process": first["process"]}
    assert resumed.lines == [("warning", "step 2"), ("error", "not saved")]
    assert await running.value(tool, work(steps=2)) == {"done": [0, 1], "process": first["process"]}
    silent = MemoryChannel()
    await running.value(job_tool("steps", progress_supported=False, digest="sha256:silent"), on(silent, work(steps=1)))
    assert (silent.reports, len(silent.saved)) == ([], 1)


async def test_a_tool_asks_its_caller(running: Running) -> None:
    tool, channel = job_tool("asks"), MemoryChannel()
    run = asyncio.create_task(running.value(tool, on(channel, work(seconds=50.0))))
    await until(lambda: channel.questions)
    assert channel.questions == [InputQuestion("Which color?\nThink.", b'{"type":"string"}')]
    channel.answers.put_nowait("réd")
    answered = await run
    assert answered["answer"] == "réd"
    assert 0 < answered["left"] <= 50
    assert "unavailable" in await running.value(tool, work(catches=True))
    assert (await running.failure(tool, work())).reason is Reason.FAILED_PRECONDITION


async def test_a_tool_that_floods_is_read_at_a_bounded_rate(running: Running) -> None:
    """The worker merges progress; code that writes frames in its place waits for the reader."""
    merged, read = MemoryChannel(), MemoryChannel()
    await running.value(job_tool("floods"), on(merged, work(how="progress", count=20_000)))
    await running.value(job_tool("floods"), on(read, work(how="frames", count=600)))
    for channel, count in ((merged, 20_000), (read, 600)):
        assert (channel.reports[-1].message, channel.reports[-1].current_step) == ("end", count)
        steps = [report.current_step for report in channel.reports]
        assert steps == sorted(steps)
    assert len(merged.reports) < 10_000
    assert len(read.reports) == 601


@pytest.mark.parametrize(
    "arguments",
    [
        {"kind": "explode", "fields": {}},
        {"kind": "progress", "fields": {"percent": "half"}},
        {"kind": "progress", "fields": {"current_step": 1.5}},
        {"kind": "progress", "fields": []},
        {"kind": "log", "fields": {"severity": "loud", "text": "x"}},
        {"kind": "partial", "fields": {}, "payload": "{"},
        {"kind": "progress", "fields": {}, "payload": "{}"},
        {"kind": "partial", "fields": {}, "payload": "[" + "0," * 200_000 + "0]"},
        {"kind": "log", "fields": {}, "size": 0x8000_0000 | 1 << 20},
    ],
)
async def test_a_malformed_report_ends_the_worker(running: Running, arguments: dict[str, Any]) -> None:
    channel = MemoryChannel()
    error = await running.failure(job_tool("speaks"), on(channel, work(**arguments)))
    assert error.reason in (Reason.TOOL_CRASHED, Reason.RESULT_TOO_LARGE)
    assert len(running.pool) == 0


async def test_reports_are_bounded_before_they_reach_the_job(running: Running) -> None:
    channel = MemoryChannel()
    assert await running.value(job_tool("limits"), on(channel, work())) == {"refused": 5}
    [saved] = channel.saved
    assert len(saved.state) == (512 << 10) + 2
    [report] = channel.reports
    assert (report.percent, report.current_step) == (100.0, 2**53)
    assert report.message.startswith("a[2Jbc")
    assert len(report.message) <= 500
