"""Streams that stay open for as long as the process does, and not a moment longer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, TypeVar

from services.audit.domain.errors import process_ending

T = TypeVar("T")


class OpenStreams:
    """Ends every stream that waits for something once the process is about to end. A stream that is at work finishes that
    first: a batch that was taken is still acknowledged."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Task[Any]] = set()
        self._closed = False

    def close(self) -> None:
        """End the streams that wait, and from now on every stream as soon as it would wait."""
        self._closed = True
        for task in self._waiting:
            task.cancel()

    async def until_closed(self, items: AsyncIterator[T]) -> AsyncIterator[T]:
        """Yield the items; raise SERVICE_UNAVAILABLE instead of waiting for one when the process is about to end."""
        task = _this_task()
        others = task.cancelling()
        while not self._closed:
            # By hand what a timeout without a time would do: that costs more for each batch than taking it apart does.
            self._waiting.add(task)
            try:
                item = await anext(items)
            except StopAsyncIteration:
                return
            except asyncio.CancelledError:
                # Whoever else wants the stream to end is not to be told that the process does.
                if self._closed and task.uncancel() <= others:
                    raise process_ending() from None
                raise
            finally:
                self._waiting.discard(task)
            yield item
        raise process_ending()


def _this_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a stream is served by a task")
    return task
