"""Waiting for the log to grow."""

from __future__ import annotations

import asyncio

from services.audit.domain.log.tail import Tail
from services.audit.domain.model import Commit
from services.audit.tests.sample import an_entry


async def test_growth_wakes_all_waiters() -> None:
    tail = Tail()
    waiting = [asyncio.ensure_future(tail.wait_beyond(4, timeout=3600)) for _ in range(3)]
    await asyncio.sleep(0)
    tail.advance(5)
    await asyncio.wait_for(asyncio.gather(*waiting), 60)


async def test_growth_before_the_wait_is_not_missed() -> None:
    tail = Tail()
    tail.advance(5)
    await asyncio.wait_for(tail.wait_beyond(4, timeout=3600), 60)


async def test_smaller_growth_wakes_no_waiter() -> None:
    tail = Tail()
    waiting = asyncio.ensure_future(tail.wait_beyond(5, timeout=3600))
    await asyncio.sleep(0)
    tail.advance(5)
    await asyncio.sleep(0)
    assert not waiting.done()
    tail.advance(6)
    await asyncio.wait_for(waiting, 60)


async def test_the_tail_buffers_commits() -> None:
    tail, entry = Tail(), an_entry()
    tail.advance(5)
    assert not tail.buffer.covers(4, 5)
    tail.advance(6, Commit("a-log", 0, 5, entry.event_time, [entry], [b""], 1))
    assert tail.buffer.covers(5, 6)


async def test_the_wait_ends_after_its_timeout() -> None:
    await asyncio.wait_for(Tail().wait_beyond(0, timeout=0.001), 60)
