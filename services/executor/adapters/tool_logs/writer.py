"""Writes the logs of tools in the background. A call never waits for its log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from prometheus_client import Counter as Metric

from libs.common.errors import MeshError, Reason
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
            dropped_logs.labels("store_unavailable").inc(len(self._queue))
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
        """Write what is queued. It stays queued while the store is away, and what the store refuses is dropped.

        If the store stored it and could not say so, it is stored twice.
        """
        while batch := self._queue[:_LOGS_PER_WRITE]:
            try:
                await self._store(batch)
            except Exception as error:
                if not (isinstance(error, MeshError) and error.reason is Reason.SERVICE_UNAVAILABLE):
                    dropped_logs.labels("refused").inc(len(batch))
                    self._forget(batch)
                raise
            self._forget(batch)

    def _forget(self, batch: Sequence[ToolLog]) -> None:
        del self._queue[: len(batch)]
        for log in batch:
            self._tenants[log.tenant] -= log.size
        # A positive copy leaves out the tenants with nothing queued.
        self._tenants = +self._tenants
