"""Long work in short pieces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

SLICE = 25

T = TypeVar("T")


async def in_slices(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield the items, and let everybody else on the loop have a turn after every few of them: those who append to the
    log wait for the same loop."""
    for number, item in enumerate(items, start=1):
        yield item
        if number % SLICE == 0:
            await asyncio.sleep(0)
