"""Streams that end when the process shuts down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, TypeVar

from services.audit.domain.errors import shutting_down

T = TypeVar("T")


class OpenStreams:
    """Ends idle streams at shutdown. A stream that is processing an item finishes it first, so an accepted batch is
    still acknowledged."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Task[Any]] = set()
        self._closed = False

    def close(self) -> None:
        """End the idle streams now, and every other stream as soon as it would wait."""
        self._closed = True
        for task in self._waiting:
            task.cancel()

    async def until_closed(self, items: AsyncIterator[T]) -> AsyncIterator[T]:
        """Yield the items; raise SERVICE_UNAVAILABLE instead of waiting for the next one during shutdown."""
        task = _this_task()
        others = task.cancelling()
        while not self._closed:
            # asyncio.timeout would do the same, but costs more for each batch than decoding it.
            self._waiting.add(task)
            try:
                item = await anext(items)
            except StopAsyncIteration:
                return
            except asyncio.CancelledError:
                # A cancellation by the caller stays a cancellation.
                if self._closed and task.uncancel() <= others:
                    raise shutting_down() from None
                raise
            finally:
                self._waiting.discard(task)
            yield item
        raise shutting_down()


def _this_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a stream must run in a task")
    return task
