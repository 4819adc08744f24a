"""Shares one running computation among all callers that ask for the same key at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from contextvars import Context
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SingleFlight(Generic[K, V]):
    """Runs a computation once per key for all concurrent callers.

    A canceled caller does not stop the computation for the others. Every caller gets the same result or exception.
    """

    def __init__(self) -> None:
        self._running: dict[K, asyncio.Task[V]] = {}

    async def run(self, key: K, compute: Callable[[], Coroutine[Any, Any, V]], *, context: Context | None = None) -> V:
        """Join the running computation for the key, or start it. It runs in `context`, by default in an empty one."""
        task = self._running.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(compute(), context=context or Context())
            self._running[key] = task
            task.add_done_callback(lambda done: self._finish(key, done))
        return await asyncio.shield(task)

    async def cancel(self) -> None:
        """Cancel all running computations and wait for their end."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    def _finish(self, key: K, task: asyncio.Task[V]) -> None:
        self._running.pop(key, None)
        if not task.cancelled():
            # Marks the exception as retrieved, for the case that every caller has left.
            task.exception()
