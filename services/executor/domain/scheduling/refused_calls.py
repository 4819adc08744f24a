"""Records calls that are refused for the limits of their caller, without letting a flood of them fill the log."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from libs.common.errors import MeshError
from services.executor.domain.model import Request

# While a caller is beyond its limits, its refused calls are one record in this time.
INTERVAL_SECONDS = 10.0


class RecordRefusal(Protocol):
    """Records refused calls."""

    async def __call__(self, request: Request, error: MeshError, calls: int = 1) -> MeshError:
        """Record that these many calls like the request are not started. Return the error of their caller."""
        ...


@dataclass(slots=True)
class _Window:
    """The refused calls of one subject or tenant since its last record."""

    request: Request
    error: MeshError
    timer: asyncio.TimerHandle
    calls: int = 0


class RefusedCalls:
    """Records the first refused call of a subject or tenant before it is answered, and those that follow together.

    The calls of an interval are counted in memory: a process that is killed loses the number of at most one interval,
    never the fact that calls were refused.
    """

    def __init__(self, record: RecordRefusal, *, interval: float = INTERVAL_SECONDS) -> None:
        self._record, self._interval = record, interval
        self._windows: dict[tuple[str, str], _Window] = {}
        self._tasks: set[asyncio.Task[MeshError]] = set()

    async def refuse(self, request: Request, error: MeshError, calls: int = 1) -> MeshError:
        """Return the error of the caller, once it is on record or counted for a record."""
        limited_tenant, caller = error.metadata.get("limit") == "tenant", request.caller
        key = (caller.tenant, "" if limited_tenant else caller.subject)
        window = self._windows.get(key)
        if window is None:
            self._open(key, request, error)
            return await self._record(request, error, calls)
        window.request, window.error, window.calls = request, error, window.calls + calls
        return error

    async def stop(self) -> None:
        """Record what is counted."""
        for key in list(self._windows):
            self._windows[key].timer.cancel()
            self._close(key)
        for key in list(self._windows):
            self._windows.pop(key).timer.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _open(self, key: tuple[str, str], request: Request, error: MeshError) -> None:
        timer = asyncio.get_running_loop().call_later(self._interval, self._close, key)
        self._windows[key] = _Window(request, error, timer)

    def _close(self, key: tuple[str, str]) -> None:
        """Record the calls of an interval. While there were any, the next interval begins at once."""
        window = self._windows.pop(key)
        if window.calls:
            self._open(key, window.request, window.error)
            error = MeshError(window.error.reason, metadata=dict(window.error.metadata))
            task = asyncio.ensure_future(self._record(window.request, error, window.calls))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
