"""The lookout: when it looks, and who hears of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry, Counter

from libs.common.runtime.poller import Poller
from libs.common.telemetry.log import Log

Begin = Callable[[], Awaitable[tuple[Poller, list[None]]]]


@pytest.fixture
async def begin() -> AsyncIterator[Begin]:
    started: list[Poller] = []

    async def start() -> tuple[Poller, list[None]]:
        looks: list[None] = []

        async def look() -> None:
            looks.append(None)

        outcomes = Counter("looks", "Looks.", ["outcome"], registry=CollectorRegistry())
        log = Log("test", descriptor=2, level="error")
        started.append(Poller("test", look, log, outcomes, interval=3600, within=5))
        await started[-1].start()
        return started[-1], looks

    yield start
    for each in started:
        await each.stop()


@asynccontextmanager
async def looked(watching: Poller) -> AsyncIterator[None]:
    """Wait at the end of the block for a look that was taken since its beginning."""
    waiting = asyncio.ensure_future(watching.next_poll())
    await turns(3)
    yield
    await asyncio.wait_for(waiting, 5)


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_call_to_wake_up_is_followed_by_a_look(begin: Begin) -> None:
    watching, looks = await begin()
    for count in (2, 3, 4):
        async with looked(watching):
            watching.wake()
        assert len(looks) == count


async def test_calls_that_come_together_share_a_look(begin: Begin) -> None:
    watching, looks = await begin()
    async with looked(watching):
        for _ in range(20):
            watching.wake()
    await turns(20)
    assert len(looks) == 2


async def test_waiters_are_released_when_the_poller_stops(begin: Begin) -> None:
    watching, looks = await begin()
    waiting = asyncio.ensure_future(watching.next_poll())
    await turns(3)
    watching.end()
    await asyncio.wait_for(waiting, 5)
    await asyncio.wait_for(watching.next_poll(), 5)
    assert len(looks) == 1
