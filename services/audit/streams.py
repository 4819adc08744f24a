"""Streams that stay open for as long as the process does, and not a moment longer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from services.audit.domain.errors import process_ending

T = TypeVar("T")


class OpenStreams:
    """Ends every stream that waits for something once the process is about to end. A stream that is at work finishes that
    first: a batch that was taken is still acknowledged."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Timeout] = set()
        self._closed = False

    def close(self) -> None:
        """End the streams that wait, and from now on every stream as soon as it would wait."""
        self._closed = True
        for scope in self._waiting:
            scope.reschedule(asyncio.get_running_loop().time())

    async def until_closed(self, items: AsyncIterator[T]) -> AsyncIterator[T]:
        """Yield the items; raise SERVICE_UNAVAILABLE instead of waiting for one when the process is about to end."""
        while True:
            async with self._wait():
                try:
                    item = await anext(items)
                except StopAsyncIteration:
                    return
            yield item

    @asynccontextmanager
    async def _wait(self) -> AsyncIterator[None]:
        if self._closed:
            raise process_ending()
        try:
            async with asyncio.timeout(None) as scope:
                self._waiting.add(scope)
                try:
                    yield
                finally:
                    self._waiting.discard(scope)
        except TimeoutError:
            raise process_ending() from None
