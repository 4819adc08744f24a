"""An invocation under way can be canceled once, with an error of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from libs.common.errors import MeshError, Reason
from libs.common.runtime.clock import SystemClock
from services.executor.domain import errors
from services.executor.domain.invocation import Invocation
from services.executor.domain.phases.supervise import ActiveInvocations
from services.executor.tests.samples import a_request


@asynccontextmanager
async def under_way(active: ActiveInvocations) -> AsyncIterator[tuple[Invocation, asyncio.Task[MeshError | None]]]:
    """Yield an invocation that waits to be canceled, and the task that returns why it was."""
    invocation, begun = Invocation(a_request(), SystemClock(), None), asyncio.Event()

    async def work() -> MeshError | None:
        active.add(invocation)
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return active.cancellation_error(invocation)
        finally:
            active.remove(invocation)
        return None

    task = asyncio.ensure_future(work())
    await begun.wait()
    yield invocation, task
    await task


async def test_the_call_of_a_request_is_canceled_once_with_its_error() -> None:
    active, why = ActiveInvocations(), errors.sibling_failed(0, errors.canceled())
    async with under_way(active) as (one, stopped), under_way(active) as (other, left):
        assert active.cancel_request(one.request, why)
        assert not active.cancel_request(one.request, errors.canceled())
        assert not active.cancel_request(a_request(), why)
        assert await stopped is why
        assert not left.done()
        assert active.cancel_request(other.request, why)


async def test_a_call_of_a_revoked_token_is_canceled_with_token_revoked() -> None:
    active = ActiveInvocations()
    async with under_way(active) as (_, task):
        assert active.cancel_revoked(lambda caller: True) == 1
        assert active.cancel_revoked(lambda caller: True) == 0
        error = await task
    assert error is not None
    assert error.reason is Reason.TOKEN_REVOKED


async def test_a_caller_that_leaves_at_the_same_time_counts_as_left() -> None:
    active = ActiveInvocations()
    async with under_way(active) as (invocation, task):
        assert active.cancel_request(invocation.request, errors.canceled())
        task.cancel()
        assert await task is None


async def test_a_finished_call_can_no_longer_be_canceled_and_is_forgotten() -> None:
    active = ActiveInvocations()
    async with under_way(active) as (invocation, task):
        active.cancel_request(invocation.request, errors.canceled())
        await task
    assert active.cancellation_error(invocation) is None
    assert not active.cancel_request(invocation.request, errors.canceled())
    assert (active._tasks, active._canceled) == ({}, {})


async def test_a_call_whose_outcome_is_recorded_keeps_it() -> None:
    active = ActiveInvocations()
    async with under_way(active) as (invocation, task):
        invocation.closed = True
        assert not active.cancel_request(invocation.request, errors.canceled())
        task.cancel()
