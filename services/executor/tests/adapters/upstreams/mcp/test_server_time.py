"""The time that a server has for a call."""

from __future__ import annotations

import asyncio

from libs.common.testing.clock import ManualClock
from services.executor.adapters.upstreams.mcp.caller import CallerClient
from services.executor.adapters.upstreams.mcp.server_time import ServerTime
from services.executor.tests.memory_channel import MemoryChannel
from services.executor.tests.waiting import until


def test_time_runs_from_the_begin_on_but_not_while_the_caller_is_asked() -> None:
    clock = ManualClock()
    measured = ServerTime(clock.monotonic)
    clock.advance(5.0)
    assert measured.seconds == 0.0
    measured.begin()
    clock.advance(2.0)
    with measured.waiting():
        clock.advance(10.0)
        with measured.waiting():
            clock.advance(10.0)
        clock.advance(10.0)
        assert measured.seconds == 2.0
    clock.advance(1.0)
    assert measured.seconds == 3.0


async def test_asking_the_caller_takes_no_time_of_the_server() -> None:
    clock, channel = ManualClock(), MemoryChannel()
    measured = ServerTime(clock.monotonic)
    measured.begin()
    client = CallerClient(channel, ("elicitation",), measured)
    asking = asyncio.create_task(client.answer({"name": {"method": "elicitation/create", "params": {"message": "?"}}}))
    await until(lambda: bool(channel.questions))
    clock.advance(100.0)
    await channel.answers.put({"name": {"action": "accept"}})
    assert await asking == {"name": {"action": "accept"}}
    assert measured.seconds == 0.0
