"""Logs of tools in a real PostgreSQL: redacted, sealed, bounded by time and bytes, and each tenant's own."""

from __future__ import annotations

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.redaction.scanner import Scanner
from libs.common.sealing import Seal
from services.executor.adapters.tables import tool_logs
from services.executor.adapters.tool_logs.postgres_logs import PostgresToolLogs
from services.executor.domain.run import LogLine, LogSource
from services.executor.domain.tool_logs.list_tool_logs import LogQuery
from services.executor.domain.tool_logs.tool_log import ToolLog

KEY = bytes(range(32))


def a_log(name: str, tenant: str = "acme", tool: str = "core.say", line: str = "hello") -> ToolLog:
    lines = (LogLine(LogSource.STDOUT, line), LogLine(LogSource.FAILURE, "mail bob@example.com"))
    return ToolLog(name, tool, "1.0.0", tenant, "alice", lines, 7, scanners=(Scanner(),))


def stored(engine: AsyncEngine, **limits: float) -> PostgresToolLogs:
    return PostgresToolLogs(
        engine,
        Seal([KEY]),
        seconds=limits.get("seconds", 600.0),
        tenant_bytes=int(limits.get("tenant_bytes", 1 << 20)),
    )


async def ids(logs: PostgresToolLogs, query: LogQuery, before: int | None = None) -> list[str]:
    return [log.invocation_id for _, log in await logs.find(query, before=before, limit=10)]


async def test_logs_are_stored_found_and_deleted(engines: tuple[AsyncEngine, AsyncEngine]) -> None:
    here, there = stored(engines[0]), stored(engines[1])
    await here.store([a_log("i1"), a_log("i2", tenant="other"), a_log("i3", tool="acme.pay"), a_log("i4")])
    say = LogQuery("core.say")
    assert await ids(there, say) == ["i4", "i2", "i1"]
    assert await ids(there, LogQuery("core.say", tenant="acme")) == ["i4", "i1"]
    assert await ids(there, LogQuery("core.say", tenant="")) == []
    assert await ids(there, LogQuery("core.say", "2.0.0")) == []
    assert await ids(there, LogQuery(invocation_id="i3")) == ["i3"]
    position = (await there.find(say, before=None, limit=1))[0][0]
    assert await ids(there, say, position) == ["i2", "i1"]

    [(_, log)] = await there.find(LogQuery(invocation_id="i1"), before=None, limit=1)
    assert [(line.source, "bob" in line.text) for line in log.lines] == [
        (LogSource.STDOUT, False),
        (LogSource.FAILURE, False),
    ]
    assert (log.lines[0].text, log.omitted) == ("hello", 7)
    async with engines[0].connect() as connection:
        sealed = (await connection.execute(select(tool_logs.c.lines))).scalars().all()
    assert not any(b"hello" in content for content in sealed)
    assert (
        await PostgresToolLogs(engines[0], Seal([b"k" * 32]), seconds=1, tenant_bytes=1).find(
            LogQuery(invocation_id="i1"), before=None, limit=1
        )
    )[0][1].lines == ()

    assert await here.sweep() == 0
    room = stored(engines[0], tenant_bytes=a_log("i").size)
    await here.store([a_log("i5")])
    while await room.sweep():
        continue
    assert await ids(there, say) == ["i5", "i2"]
    async with engines[0].begin() as connection:
        await connection.execute(text("update tool_logs set expire_time = now() - interval '1 second'"))
    assert await ids(there, say) == []
    assert await here.sweep() == 2
