"""Background tasks are kept and logged; periodic tasks survive failures and stop at once."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from libs.common.runtime.tasks import BackgroundTasks, PeriodicTask


class RecordingLog:
    """Keeps the errors that are logged."""

    def __init__(self) -> None:
        self.errors: list[tuple[str, dict[str, Any]]] = []

    def error(self, event: str, **fields: Any) -> None:
        self.errors.append((event, fields))


@pytest.fixture
def log() -> Any:
    return RecordingLog()


async def test_a_spawned_task_is_kept_until_it_ends(log: Any) -> None:
    tasks, release = BackgroundTasks(log, "step failed"), asyncio.Event()
    tasks.spawn(release.wait())
    gc.collect()
    assert len(tasks) == 1
    release.set()
    await tasks.drain()
    assert len(tasks) == 0
    assert log.errors == []


async def test_a_failed_task_is_logged_with_its_cause(log: Any) -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    tasks = BackgroundTasks(log, "step failed")
    task = tasks.spawn(fail(), name="division")
    await asyncio.wait({task})
    await tasks.drain()
    [(event, fields)] = log.errors
    assert (event, fields["task"]) == ("step failed", "division")
    assert isinstance(fields["cause"], ZeroDivisionError)


async def test_draining_waits_for_tasks_that_tasks_start(log: Any) -> None:
    tasks, ended = BackgroundTasks(log, "step failed"), list[str]()

    async def inner() -> None:
        await asyncio.sleep(0)
        ended.append("inner")

    async def outer() -> None:
        await asyncio.sleep(0)
        tasks.spawn(inner())
        ended.append("outer")

    tasks.spawn(outer())
    await tasks.drain()
    assert ended == ["outer", "inner"]


async def test_draining_cancels_what_exceeds_its_time(log: Any) -> None:
    tasks = BackgroundTasks(log, "step failed")
    task = tasks.spawn(asyncio.Event().wait())
    await tasks.drain(timeout=0.01)
    assert task.cancelled()
    assert len(tasks) == 0
    assert log.errors == []


async def test_canceling_without_tasks_returns(log: Any) -> None:
    await BackgroundTasks(log, "step failed").cancel()


async def test_a_periodic_task_runs_again_after_a_failure(log: Any) -> None:
    runs, third = 0, asyncio.Event()

    async def step() -> None:
        nonlocal runs
        runs += 1
        if runs == 3:
            third.set()
        if runs == 1:
            raise ZeroDivisionError

    periodic = PeriodicTask("sweep", step, log, interval=0.001)
    await periodic.start()
    async with asyncio.timeout(30):
        await third.wait()
    await periodic.stop()
    [(_, fields)] = log.errors
    assert fields["task"] == "sweep"
    assert isinstance(fields["cause"], ZeroDivisionError)


async def test_the_first_step_runs_after_one_interval(log: Any) -> None:
    runs = []

    async def step() -> None:
        runs.append(1)

    periodic = PeriodicTask("sweep", step, log, interval=600)
    await periodic.start()
    await asyncio.sleep(0)
    await periodic.stop()
    assert runs == []


async def test_stopping_ends_a_step_that_is_running(log: Any) -> None:
    begun, canceled = asyncio.Event(), False

    async def step() -> None:
        nonlocal canceled
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            canceled = True
            raise

    periodic = PeriodicTask("sweep", step, log, interval=0.001)
    await periodic.start()
    async with asyncio.timeout(30):
        await begun.wait()
    await periodic.stop()
    assert canceled
    assert log.errors == []


async def test_a_periodic_task_that_never_started_can_be_stopped(log: Any) -> None:
    async def step() -> None: ...

    await PeriodicTask("sweep", step, log, interval=1).stop()
