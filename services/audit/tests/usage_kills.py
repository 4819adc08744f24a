"""Kills a counting process, and checks the counts afterwards."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from toolmesh.audit.v1 import audit_service_pb2 as pb

from services.audit.convert.audit import entries_of
from services.audit.tests.conftest import a_writer
from services.audit.tests.usage_replicas import counted, plain_cells, stored_cells
from services.audit.tests.usage_sample import a_decision, a_failure, an_ending
from tests.harness.stores import wait_until

BATCH = 1000


async def kill_while_counting(environment: dict[str, str], repository: Path, *, records: int, kills: int) -> list[int]:
    """Fill a log, kill the counting process `kills` times, let another one finish, and assert that every record was
    counted once. Return the position at each kill."""
    url = environment["TOOLMESH_DATABASE_URL"]
    await _fill(url, records)
    deaths = []
    for kill in range(kills + 1):
        process = _launch(environment, repository)
        goal = records if kill == kills else counted(url) + 1
        try:
            await asyncio.to_thread(wait_until, lambda goal=goal: counted(url) >= goal, "counting", 120)  # type: ignore[misc]
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        deaths.append(counted(url))
    assert stored_cells(url) == plain_cells(url)
    return deaths


def _launch(environment: dict[str, str], repository: Path) -> subprocess.Popen[bytes]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TOOLMESH_")}
    command = [sys.executable, "-m", "services.audit"]
    return subprocess.Popen(command, cwd=repository, env={**inherited, **environment})


async def _fill(url: str, records: int) -> None:
    writer = a_writer(url)
    await writer.start()
    for start in range(0, records, BATCH):
        await writer.append(entries_of(pb.AppendRecordsRequest(batch=1, records=list(_some(start))), "executor"))
    await writer.stop()


def _some(start: int) -> Iterator[Any]:
    for number in range(start, start + BATCH):
        fields: dict[str, Any] = {
            "subject": f"did:web:a:{number % 11}",
            "task_id": f"task-{number % 40}",
            "tool_version": f"tools/core.tool_{number % 5}/versions/1.0.0",
            "latency_us": number,
        }
        yield a_decision(**fields) if number % 2 else (a_failure if number % 10 == 0 else an_ending)(**fields)
