"""Runs steps that must end even if their caller is canceled meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any, TypeVar

# How long a canceled caller waits for a commit or rollback. Bounded, because the shutdown of the process may wait for
# it.
CANCEL_WAIT_SECONDS = 5.0
T = TypeVar("T")


class ShieldedSteps:
    """Keeps references to steps under way, so that the event loop cannot lose them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Future[Any]] = set()

    async def run_shielded(self, step: Awaitable[T]) -> T:
        """Await a step. It continues in the background if the caller is canceled."""
        return await asyncio.shield(self.start(step))

    async def finish_before_cancel(self, step: Awaitable[None]) -> bool:
        """Await a step to its end, even if the caller is canceled meanwhile. Return whether that happened.

        The cancellation is then still due. It is raised here if the step takes longer than CANCEL_WAIT_SECONDS after
        it.
        """
        task = self.start(step)
        canceled = False
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            await _outlast_cancellation(task)
            canceled = True
        task.result()
        return canceled

    def start(self, step: Awaitable[T]) -> asyncio.Future[T]:
        """Start a step in the background. Its exception is never reported as unretrieved."""
        task = asyncio.ensure_future(step)
        self._tasks.add(task)
        task.add_done_callback(self._discard)
        return task

    def _discard(self, task: asyncio.Future[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # Marks the exception as retrieved: a caller that is still there gets it from its own await.
            task.exception()


async def _outlast_cancellation(task: asyncio.Future[Any]) -> None:
    """Wait for a task however often the wait is canceled, up to CANCEL_WAIT_SECONDS."""
    loop = asyncio.get_running_loop()
    until = loop.time() + CANCEL_WAIT_SECONDS
    while not task.done():
        if loop.time() >= until:
            raise asyncio.CancelledError
        with suppress(asyncio.CancelledError):
            await asyncio.wait([task], timeout=until - loop.time())
