"""Waiting for processes that are not children."""

from __future__ import annotations

import os
import subprocess
import sys

from services.executor.adapters.sandbox.launcher.process_tree import descendants
from services.executor.adapters.sandbox.launcher.process_usage import cpu_seconds
from services.executor.adapters.sandbox.wait_pids import wait_pids

FAMILY = "import os, sys\nif os.fork() == 0:\n os.fork()\nprint('here', flush=True)\nsys.stdin.read()"
BUSY = "import time\nwhile time.process_time() < 0.2: pass\nprint('here', flush=True)\nimport sys; sys.stdin.read()"


def _started(code: str, lines: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-I", "-S", "-c", code]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for _ in range(lines):
        process.stdout.readline()
    return process


async def test_wait_pids_waits_for_descendants() -> None:
    process = _started(FAMILY, 3)
    found = descendants(process.pid)
    assert len(found) == 2
    assert process.pid in descendants(os.getpid())
    assert not await wait_pids(found, 0.01)
    process.communicate()
    assert await wait_pids(found, 10)


async def test_wait_pids_returns_for_ended_processes() -> None:
    process = _started("", 0)
    process.communicate()
    assert descendants(process.pid) == []
    assert await wait_pids([process.pid], 10)
    assert cpu_seconds(process.pid) == 0.0


def test_processor_time_is_counted() -> None:
    process = _started(BUSY, 1)
    assert cpu_seconds(process.pid) >= 0.15
    process.communicate()
