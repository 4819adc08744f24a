"""Waits for an effect of another process or task."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def until(ask: Callable[[], Awaitable[T]], holds: Callable[[T], object], seconds: float = 60.0) -> T:
    """Repeat a call until its result satisfies a condition, and return it; fail after a timeout."""
    async with asyncio.timeout(seconds):
        while not holds(answer := await ask()):  # noqa: ASYNC110  (another process decides when)
            await asyncio.sleep(0.02)
    return answer
