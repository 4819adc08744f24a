"""The requests that run in this process, so that `notifications/cancelled` can stop them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from libs.common.errors import MeshError, Reason
from services.gateway.mcp.context import Cancellation
from services.gateway.mcp.messages import RequestId

T = TypeVar("T")


def request_key(session: str, request_id: RequestId) -> str:
    """Return the key of a request: its id is unique within its session, and 1 is not "1"."""
    return f"{session}:{type(request_id).__name__}:{request_id}"


class RunningRequests:
    """Runs requests under their keys, and cancels them by key."""

    def __init__(self) -> None:
        self._running: dict[str, set[_Running]] = {}

    async def run(self, key: str, work: Awaitable[T], cancellation: Cancellation) -> T:
        """Await the work; cancelled by its key, it stops down to the last hop and raises CANCELED."""
        task = asyncio.current_task()
        assert task is not None
        running = _Running(task, cancellation)
        self._running.setdefault(key, set()).add(running)
        try:
            return await work
        except asyncio.CancelledError:
            if not cancellation.requested:
                raise
            task.uncancel()
            raise MeshError(Reason.CANCELED) from None
        finally:
            same = self._running[key]
            same.discard(running)
            if not same:
                del self._running[key]

    def cancel(self, key: str) -> None:
        """Cancel the requests with this key; without one, nothing happens."""
        for running in self._running.get(key, ()):
            if not running.cancellation.requested:
                running.cancellation.requested = True
                running.task.cancel()


class _Running:
    __slots__ = ("cancellation", "task")

    def __init__(self, task: asyncio.Task[object], cancellation: Cancellation) -> None:
        self.task, self.cancellation = task, cancellation
