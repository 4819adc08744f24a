"""Queued logs: written in the background, bounded, and of one tenant never at the cost of another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from libs.common.errors import MeshError, Reason
from libs.common.telemetry.log import Log
from services.executor.adapters.tool_logs.writer import MAX_TENANT_BYTES, ToolLogWriter
from services.executor.domain.run import LogLine, LogSource
from services.executor.domain.tool_logs.tool_log import ToolLog


def a_log(name: str, tenant: str = "acme", size: int = 10) -> ToolLog:
    return ToolLog(name, "core.say", "1.0.0", tenant, "alice", (LogLine(LogSource.STDOUT, "x" * size),))


class Store:
    """Stores logs, or fails with the next of its errors."""

    def __init__(self, *errors: Exception) -> None:
        self.errors, self.written = list(errors), list[str]()

    async def __call__(self, logs: Sequence[ToolLog]) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.written.extend(log.invocation_id for log in logs)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with (tmp_path / "log").open("w") as stream:
        yield Log("executor", descriptor=stream.fileno())


async def test_a_tenant_that_logs_much_loses_its_own_logs(log: Log) -> None:
    store = Store()
    writer = ToolLogWriter(store, log)
    for number in range(100):
        writer.put(a_log(f"busy{number}", size=MAX_TENANT_BYTES // 10))
    writer.put(a_log("other", tenant="other"))
    await writer.start()
    await writer.stop()
    assert store.written[-1] == "other"
    assert 1 <= len(store.written) - 1 < 10


async def test_logs_wait_for_a_store_that_is_away_and_stay_bounded(log: Log) -> None:
    away = [MeshError(Reason.SERVICE_UNAVAILABLE) for _ in range(2)]
    store = Store(*away)
    writer = ToolLogWriter(store, log)
    writer.put(a_log("kept"))
    for _ in away:
        for number in range(10):
            writer.put(a_log(f"busy{number}", size=MAX_TENANT_BYTES // 10))
        with pytest.raises(MeshError):
            await writer.flush()
    await writer.flush()
    assert store.written == ["kept", *(f"busy{number}" for number in range(len(store.written) - 1))]
    assert len(store.written) <= 10
    # What is written takes nothing of the bound any more.
    written, store.written = store.written, []
    for number in range(10):
        writer.put(a_log(f"busy{number}", size=MAX_TENANT_BYTES // 10))
    await writer.flush()
    assert len(store.written) == len(written) - 1


async def test_what_the_store_refuses_is_dropped_and_the_next_is_written(log: Log) -> None:
    store = Store(MeshError(Reason.INVALID_REQUEST))
    writer = ToolLogWriter(store, log)
    writer.put(a_log("refused"))
    with pytest.raises(MeshError):
        await writer.flush()
    writer.put(a_log("next"))
    await writer.flush()
    assert store.written == ["next"]
