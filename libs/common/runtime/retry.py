"""Saying again what a store did not hear. Whoever waited is answered by then; what a call that is over holds there must not stay held."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from libs.common.errors import MeshError

_FIRST_PAUSE, _LONGEST_PAUSE, _GROWTH = 0.05, 1.0, 2.0


async def say_again(step: Callable[[], Awaitable[None]], *, each: float, within: float) -> None:
    """Take a step until it succeeds, each time for so many seconds at most. It must be one that may be taken twice. Returns when all the
    time for it is over, too: what is not said by then ends by itself. Whatever is not worth another attempt is raised."""
    loop, pause = asyncio.get_running_loop(), _FIRST_PAUSE
    until = loop.time() + within
    while loop.time() + pause < until:
        await asyncio.sleep(pause)
        pause = min(pause * _GROWTH, _LONGEST_PAUSE)
        try:
            async with asyncio.timeout(each):
                await step()
            return
        except Exception as cause:
            if not may_pass(cause):
                raise


def may_pass(cause: Exception) -> bool:
    """Say whether a failure may be over the next time: a store that is away or slow."""
    return isinstance(cause, TimeoutError) or (isinstance(cause, MeshError) and cause.row.retryable)
