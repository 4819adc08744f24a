"""The wakeup between replicas, on a real Valkey and without one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from libs.common.redis_wakeup import RedisWakeup
from libs.common.telemetry.log import Log

CHANNEL = "toolmesh:test:changes"
DEAD_BUS = "redis://127.0.0.1:1/0"
QUIET = Log("test", level="error")

Hang = Callable[[str], Awaitable[tuple[RedisWakeup, asyncio.Event]]]


@pytest.fixture
async def hang() -> AsyncIterator[Hang]:
    """Return a function that hangs up a wakeup, and the event that it sets when it rings."""
    bells: list[RedisWakeup] = []

    async def one(url: str) -> tuple[RedisWakeup, asyncio.Event]:
        heard = asyncio.Event()
        bells.append(RedisWakeup(url, CHANNEL, heard.set, QUIET))
        await bells[-1].start()
        return bells[-1], heard

    yield one
    for wakeup in bells:
        await wakeup.stop()


async def test_everyone_hears_it(hang: Hang, valkey_url: str) -> None:
    (first, near), (second, far) = await hang(valkey_url), await hang(valkey_url)
    for wakeup, heard in ((first, near), (second, far)):
        await wakeup.subscribed.wait()
        # Who begins to listen may have missed something, so it looks once.
        await heard.wait()
        heard.clear()
    first.notify()
    await far.wait()
    assert near.is_set()


async def test_without_a_bus_it_still_wakes_this_process(hang: Hang) -> None:
    wakeup, heard = await hang(DEAD_BUS)
    wakeup.notify()
    assert heard.is_set()


async def test_it_can_be_taken_down_at_any_moment(valkey_url: str) -> None:
    for turn in range(10):
        wakeup = RedisWakeup(valkey_url, CHANNEL, lambda: None, QUIET)
        await wakeup.start()
        wakeup.notify()
        for _ in range(turn * 3):
            await asyncio.sleep(0)
        await wakeup.stop()
