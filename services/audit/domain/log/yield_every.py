"""Keeps long loops from blocking the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

SLICE = 25

T = TypeVar("T")


async def yield_every(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield the items, and let other tasks run after every 25 of them: appends share the event loop."""
    for number, item in enumerate(items, start=1):
        yield item
        if number % SLICE == 0:
            await asyncio.sleep(0)
