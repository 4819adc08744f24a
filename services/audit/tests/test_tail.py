"""Waiting for the log to grow."""

from __future__ import annotations

import asyncio

from services.audit.domain.tail import Tail


async def test_growth_wakes_all_who_wait_for_it() -> None:
    tail = Tail()
    waiting = [asyncio.ensure_future(tail.beyond(4, timeout=60)) for _ in range(3)]
    await asyncio.sleep(0)
    tail.reached(5)
    await asyncio.wait_for(asyncio.gather(*waiting), 5)


async def test_growth_before_the_wait_is_not_missed() -> None:
    tail = Tail()
    tail.reached(5)
    await asyncio.wait_for(tail.beyond(4, timeout=60), 5)


async def test_growth_that_does_not_reach_far_enough_wakes_nobody() -> None:
    tail = Tail()
    waiting = asyncio.ensure_future(tail.beyond(5, timeout=60))
    await asyncio.sleep(0)
    tail.reached(5)
    await asyncio.sleep(0)
    assert not waiting.done()
    tail.reached(6)
    await asyncio.wait_for(waiting, 5)


async def test_the_wait_ends_when_its_time_is_up() -> None:
    await asyncio.wait_for(Tail().beyond(0, timeout=0.001), 5)
