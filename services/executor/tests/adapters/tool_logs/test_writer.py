"""Queued logs: written in the background, bounded, and of one tenant never at the cost of another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from libs.common.telemetry.log import Log
from services.executor.adapters.tool_logs.writer import MAX_TENANT_BYTES, ToolLogWriter
from services.executor.domain.run import LogLine, LogSource
from services.executor.domain.tool_logs.tool_log import ToolLog


def a_log(name: str, tenant: str = "acme", size: int = 10) -> ToolLog:
    return ToolLog(name, "core.say", "1.0.0", tenant, "alice", (LogLine(LogSource.STDOUT, "x" * size),))


async def test_logs_are_written_and_a_busy_tenant_loses_its_own(tmp_path: Path) -> None:
    written: list[str] = []
    failures = [OSError("gone")]

    async def store(logs: Sequence[ToolLog]) -> None:
        if failures:
            raise failures.pop()
        written.extend(log.invocation_id for log in logs)

    with (tmp_path / "log").open("w") as stream:
        writer = ToolLogWriter(store, Log("executor", descriptor=stream.fileno()))
        writer.put(a_log("lost"))
        with pytest.raises(OSError, match="gone"):
            await writer.flush()
        for number in range(100):
            writer.put(a_log(f"busy{number}", size=MAX_TENANT_BYTES // 10))
        writer.put(a_log("other", tenant="other"))
        await writer.start()
        await writer.stop()
    assert written[-1] == "other"
    assert 1 <= len(written) - 1 < 10
    assert "lost" not in written
