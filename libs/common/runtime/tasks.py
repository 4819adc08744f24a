"""Background work on the event loop: tasks that are kept and logged, and loops that survive failures."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from libs.common.telemetry.log import Log


class BackgroundTasks:
    """Keeps references to tasks that are not awaited, and logs the ones that fail."""

    def __init__(self, log: Log, message: str) -> None:
        """`message` is the log line of a failure."""
        self._log, self._message = log, message
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], *, name: str | None = None) -> asyncio.Task[Any]:
        """Start a task and keep it until it ends."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._finish)
        return task

    async def drain(self, timeout: float | None = None) -> None:
        """Wait for every task, also those started meanwhile; cancel the rest after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                while self._tasks:
                    await asyncio.wait(set(self._tasks))
        except TimeoutError:
            await self.cancel()

    async def cancel(self) -> None:
        """Cancel every task and wait for their end."""
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _finish(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error(self._message, cause=error, task=task.get_name())


class PeriodicTask:
    """Runs a step every `interval` seconds until it is stopped. A failed step is logged, and runs again next time."""

    def __init__(self, name: str, step: Callable[[], Awaitable[object]], log: Log, *, interval: float) -> None:
        self._name, self._step, self._log, self._interval = name, step, log, interval
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the loop. The first step runs after one interval."""
        self._task = asyncio.create_task(self._run(), name=self._name)

    async def stop(self) -> None:
        """Cancel the loop and wait for its end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            try:
                await self._step()
            except Exception as error:
                self._log.error("periodic task failed", task=self._name, cause=error)
