"""Waiting for something to become true, instead of for time to pass."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
POLL_SECONDS = 0.02


def eventually(condition: Callable[[], T | None], seconds: float = 120.0) -> T:
    """Returns the first true answer; fails when there was none in time."""
    end = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < end, f"not true within {seconds} s"
        time.sleep(POLL_SECONDS)
    return answer


async def eventually_async(condition: Callable[[], Awaitable[T]], seconds: float = 120.0) -> T:
    """Returns the first true answer; fails when there was none in time. Being refused a connection counts as not
    yet."""
    async with asyncio.timeout(seconds):
        while True:
            try:
                if answer := await condition():
                    return answer
            except OSError:
                pass
            await asyncio.sleep(POLL_SECONDS)
