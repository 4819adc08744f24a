"""How the job of a run cancels it: real processes in real sandboxes."""

from __future__ import annotations

import asyncio

import pytest

from libs.common.errors import Reason
from services.executor.adapters.runners.channel.cancellation import CancelGrace
from services.executor.domain.tool import Effect
from services.executor.tests.memory_channel import MemoryChannel, job_tool, on
from services.executor.tests.packing import work
from services.executor.tests.running import Running, Starting, own_tmp, running, starting
from services.executor.tests.waiting import until

__all__ = ["own_tmp", "running", "starting"]

LONG, NONE = 600.0, 0.0


@pytest.mark.parametrize("how", ["raises", "sleeps", "asks"])
async def test_a_tool_stops_by_itself(starting: Starting, how: str) -> None:
    running = await starting(cancel_grace=CancelGrace(LONG, LONG))
    channel = MemoryChannel()
    run = on(channel, work(how=how))
    failing = asyncio.create_task(running.failure(job_tool("waits"), run))
    await until(lambda: channel.reports if how != "asks" else channel.questions)
    channel.cancel()
    error = await failing
    assert (error.reason, error.metadata) == (Reason.INVOCATION_CANCELED, {"cancellation": "cooperative"})
    assert run.notes.effects == (Effect("orders/1", "update"),)
    # What it saved while it stopped is kept.
    assert channel.states == [{"cleaned": how}]
    assert len(running.pool) == 0


async def test_a_canceled_tool_may_end_with_its_own_outcome(starting: Starting) -> None:
    running = await starting(cancel_grace=CancelGrace(LONG, LONG))
    finishing, failing = MemoryChannel(), MemoryChannel()
    finished = asyncio.create_task(running.value(job_tool("waits"), on(finishing, work(how="looks"))))
    failed = asyncio.create_task(running.failure(job_tool("waits"), on(failing, work(how="fails"))))
    await until(lambda: finishing.reports and failing.reports)
    finishing.cancel()
    failing.cancel()
    assert await finished == {"finished": True}
    assert (await failed).reason is Reason.PARTIAL_FAILURE


@pytest.mark.parametrize(
    ("how", "grace", "supported", "stop", "cleans_up"),
    [
        ("computes", CancelGrace(NONE, LONG), True, "terminated", True),
        ("computes", CancelGrace(LONG, LONG), False, "not_supported", True),
        ("ignores", CancelGrace(NONE, NONE), True, "killed", False),
        ("ignores", CancelGrace(LONG, NONE), False, "not_supported", False),
    ],
)
async def test_a_tool_that_does_not_stop_is_terminated_and_killed(
    starting: Starting, how: str, grace: CancelGrace, supported: bool, stop: str, cleans_up: bool
) -> None:
    running, channel = await starting(cancel_grace=grace), MemoryChannel()
    failing = asyncio.create_task(
        running.failure(job_tool("waits", cancellation_supported=supported), on(channel, work(how=how)))
    )
    await until(lambda: channel.reports)
    channel.cancel()
    error = await failing
    assert (error.reason, error.metadata) == (Reason.INVOCATION_CANCELED, {"cancellation": stop})
    assert channel.states == ([{"cleaned": how}] if cleans_up else [])
    assert len(running.pool) == 0


async def test_a_run_that_is_canceled_before_it_starts_is_not_started(running: Running) -> None:
    channel = MemoryChannel()
    channel.cancel()
    error = await running.failure(job_tool("steps"), on(channel, work(steps=1)))
    assert (error.reason, channel.reports) == (Reason.INVOCATION_CANCELED, [])


async def test_the_task_of_a_run_with_a_job_can_be_canceled(running: Running) -> None:
    channel = MemoryChannel()
    run = asyncio.create_task(running.value(job_tool("waits"), on(channel, work(how="asks"))))
    await until(lambda: channel.questions)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert len(running.pool) == 0
