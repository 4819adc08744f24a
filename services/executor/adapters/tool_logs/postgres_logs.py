"""Stores the logs of tools in PostgreSQL, redacted and sealed, until they expire or their tenant has too many.

Times are the database's, because replicas share the rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import orjson
from sqlalchemy import delete, func, insert, select, text
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.sealing import Seal, SealError
from libs.common.sql.engine import separately, transaction
from services.executor.adapters.tables import tool_logs
from services.executor.domain.run import LogLine, LogSource
from services.executor.domain.tool_logs.list_tool_logs import LogQuery
from services.executor.domain.tool_logs.tool_log import ToolLog, redact

_SWEEP_ROWS = 1000
# The rows of each tenant from the newest on, with the bytes up to each of them; those beyond the limit are deleted.
_SWEEP_EXCESS = text(
    "delete from tool_logs where sequence in (select sequence from (select sequence,"
    " sum(size_bytes) over (partition by tenant order by sequence desc) as total from tool_logs) as counted"
    " where total > :most limit :rows)"
)


class PostgresToolLogs:
    """The logs of all executors."""

    def __init__(self, engine: AsyncEngine, seal: Seal, *, seconds: float, tenant_bytes: int) -> None:
        self._engine, self._seal = engine, seal
        self._seconds, self._tenant_bytes = seconds, tenant_bytes

    async def store(self, logs: Sequence[ToolLog]) -> None:
        """Redact, seal and insert logs. Raises SERVICE_UNAVAILABLE."""
        rows = await asyncio.to_thread(lambda: [self._row(log) for log in logs])
        times = {"create_time": func.now(), "expire_time": func.now() + timedelta(seconds=self._seconds)}
        async with transaction(self._engine) as connection:
            await connection.execute(insert(tool_logs).values(times), rows)

    async def find(self, query: LogQuery, *, before: int | None, limit: int) -> list[tuple[int, ToolLog]]:
        """Return logs with their positions, the newest first. Raises SERVICE_UNAVAILABLE."""
        columns = tool_logs.c
        statement = select(tool_logs).where(columns.expire_time > func.now())
        for column, value in ((columns.tool, query.tool), (columns.invocation_id, query.invocation_id)):
            if value:
                statement = statement.where(column == value)
        if query.tool and query.version:
            statement = statement.where(columns.version == query.version)
        if query.tenant is not None:
            statement = statement.where(columns.tenant == query.tenant)
        if before is not None:
            statement = statement.where(columns.sequence < before)
        async with separately(self._engine) as connection:
            rows = (await connection.execute(statement.order_by(columns.sequence.desc()).limit(limit))).all()
        return [(row.sequence, self._log(row)) for row in rows]

    async def sweep(self) -> int:
        """Delete a bounded number of logs that expired, or that exceed the bytes of their tenant; return how many."""
        expired = select(tool_logs.c.sequence).where(tool_logs.c.expire_time <= func.now()).limit(_SWEEP_ROWS)
        async with separately(self._engine) as connection:
            old = (await connection.execute(delete(tool_logs).where(tool_logs.c.sequence.in_(expired)))).rowcount
            most = {"most": self._tenant_bytes, "rows": _SWEEP_ROWS}
            return old + (await connection.execute(_SWEEP_EXCESS, most)).rowcount

    def _row(self, log: ToolLog) -> dict[str, Any]:
        lines = orjson.dumps([(line.source, line.text) for line in redact(log)])
        sealed = self._seal.seal(lines, _context(log.invocation_id))
        return {
            "invocation_id": log.invocation_id,
            "tool": log.tool,
            "version": log.version,
            "tenant": log.tenant,
            "subject": log.subject,
            "lines": sealed,
            "omitted": log.omitted,
            "size_bytes": log.size,
        }

    def _log(self, row: Any) -> ToolLog:
        """Return the log of a row, without its lines if their sealing key is gone."""
        try:
            lines = orjson.loads(self._seal.open(row.lines, _context(row.invocation_id)))
        except SealError:
            lines = []
        return ToolLog(
            row.invocation_id,
            row.tool,
            row.version,
            row.tenant,
            row.subject,
            tuple(LogLine(LogSource(source), line) for source, line in lines),
            row.omitted,
            row.create_time,
            row.expire_time,
        )


def _context(invocation_id: str) -> str:
    """Return the context that the lines are bound to."""
    return f"tool_logs/{invocation_id}"
