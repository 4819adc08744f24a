"""Who is under way can be stopped, once, with a reason that is its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from libs.common.errors import MeshError, Reason
from libs.common.runtime.clock import SystemClock
from services.executor.domain import errors
from services.executor.domain.invocation import Invocation
from services.executor.domain.running import Running
from services.executor.tests.samples import a_request


@asynccontextmanager
async def under_way(running: Running) -> AsyncIterator[tuple[Invocation, asyncio.Task[MeshError | None]]]:
    """An invocation that waits to be stopped, and the task that then says why it was."""
    invocation, begun = Invocation(a_request(), SystemClock(), None), asyncio.Event()

    async def work() -> MeshError | None:
        running.begin(invocation)
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return running.stopped(invocation)
        finally:
            running.end(invocation)
        return None

    task = asyncio.ensure_future(work())
    await begun.wait()
    yield invocation, task
    await task


async def test_the_call_of_a_request_is_stopped_once_and_hears_why() -> None:
    running, why = Running(), errors.sibling_failed(0, errors.canceled())
    async with under_way(running) as (one, stopped), under_way(running) as (other, left):
        assert running.stop(one.request, why)
        assert not running.stop(one.request, errors.canceled())
        assert not running.stop(a_request(), why)
        assert await stopped is why
        assert not left.done()
        assert running.stop(other.request, why)


async def test_who_is_withdrawn_hears_that_its_authority_was_revoked() -> None:
    running = Running()
    async with under_way(running) as (_, task):
        assert running.withdraw(lambda caller: True) == 1
        assert running.withdraw(lambda caller: True) == 0
        error = await task
    assert error is not None
    assert error.reason is Reason.TOKEN_REVOKED


async def test_a_caller_that_leaves_in_the_same_moment_has_left() -> None:
    running = Running()
    async with under_way(running) as (invocation, task):
        assert running.stop(invocation.request, errors.canceled())
        task.cancel()
        assert await task is None


async def test_what_is_over_can_no_longer_be_stopped_and_is_forgotten() -> None:
    running = Running()
    async with under_way(running) as (invocation, task):
        running.stop(invocation.request, errors.canceled())
        await task
    assert running.stopped(invocation) is None
    assert not running.stop(invocation.request, errors.canceled())
    assert (running._tasks, running._stopped) == ({}, {})


async def test_what_has_its_ending_recorded_keeps_it() -> None:
    running = Running()
    async with under_way(running) as (invocation, task):
        invocation.closed = True
        assert not running.stop(invocation.request, errors.canceled())
        task.cancel()
