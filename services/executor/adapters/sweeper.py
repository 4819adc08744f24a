"""Periodically deletes expired rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from libs.common.rpc.application import Resource
from libs.common.runtime.tasks import PeriodicTask
from libs.common.telemetry.log import Log

SWEEP_SECONDS = 300.0


def sweeper(name: str, sweep: Callable[[], Awaitable[int]], log: Log) -> Resource:
    """Return a resource that deletes expired rows every few minutes."""

    async def sweep_all() -> None:
        while deleted := await sweep():
            log.debug("expired rows deleted", table=name, count=deleted)

    task = PeriodicTask(f"sweep-{name}", sweep_all, log, interval=SWEEP_SECONDS)
    return Resource(task.start, task.stop)
