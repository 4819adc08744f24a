"""Waiting for what another process or task has done to arrive here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def until(ask: Callable[[], Awaitable[T]], holds: Callable[[T], object], seconds: float = 60.0) -> T:
    """Ask again until the answer is the one waited for, and return it; fail when it never is."""
    async with asyncio.timeout(seconds):
        while not holds(answer := await ask()):  # noqa: ASYNC110  (another process decides when)
            await asyncio.sleep(0.02)
    return answer
