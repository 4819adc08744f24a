"""Writes the logs of tools in the background. A call never waits for its log."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from prometheus_client import Counter as Metric

from libs.common.runtime.tasks import PeriodicTask
from libs.common.telemetry.log import Log
from services.executor.domain.tool_logs.tool_log import ToolLog

FLUSH_SECONDS = 0.5
# What may wait to be written, in all and of one tenant: a tenant that logs much loses its own logs only.
MAX_QUEUED_BYTES = 8 << 20
MAX_TENANT_BYTES = 512 << 10
_LOGS_PER_WRITE = 200
dropped_logs = Metric("toolmesh_tool_logs_dropped_total", "Logs of tools that were dropped, by cause.", ["cause"])


class ToolLogWriter:
    """Queues logs, and stores them every half second."""

    def __init__(self, store: Callable[[Sequence[ToolLog]], Awaitable[None]], log: Log) -> None:
        self._store, self._log = store, log
        self._queue: list[ToolLog] = []
        self._tenants: Counter[str] = Counter()
        self._task = PeriodicTask("tool-logs", self.flush, log, interval=FLUSH_SECONDS)

    async def start(self) -> None:
        """Start to write."""
        await self._task.start()

    async def stop(self) -> None:
        """Stop, and write what is queued."""
        await self._task.stop()
        try:
            await self.flush()
        except Exception as cause:
            self._log.error("logs of tools not written", cause=cause)

    def put(self, log: ToolLog) -> None:
        """Queue a log. Drops it if its tenant, or all together, have too much queued."""
        size = log.size
        if self._tenants[log.tenant] + size > MAX_TENANT_BYTES or self._tenants.total() + size > MAX_QUEUED_BYTES:
            dropped_logs.labels("queue_full").inc()
            return
        self._tenants[log.tenant] += size
        self._queue.append(log)

    async def flush(self) -> None:
        """Write what is queued. What cannot be stored is dropped: a store that is down must not fill the memory."""
        queue, self._queue = self._queue, []
        self._tenants.clear()
        for first in range(0, len(queue), _LOGS_PER_WRITE):
            batch = queue[first : first + _LOGS_PER_WRITE]
            try:
                await self._store(batch)
            except asyncio.CancelledError:
                self._queue = [*queue[first:], *self._queue]
                raise
            except Exception:
                dropped_logs.labels("store_unavailable").inc(len(queue) - first)
                raise
