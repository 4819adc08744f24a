"""The memory watch of gVisor, on a memory file of this process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from services.executor.adapters.sandbox.gvisor.memory_watch import MemoryWatch, WatchedMemory
from services.executor.adapters.sandbox.gvisor.sandbox import GvisorSandbox
from services.executor.adapters.sandbox.launcher.cgroup_hierarchy import CgroupPolicy
from services.executor.adapters.sandbox.port import ExitKind
from services.executor.tests.sandboxes import MIB, attempt, missing, python

_PATIENCE = 60.0


@pytest.fixture
def memory_file() -> Iterator[int]:
    descriptor = os.memfd_create("runsc-memory")
    yield descriptor
    os.close(descriptor)


def _watched(limit: int, stopped: list[bool]) -> WatchedMemory:
    return WatchedMemory(limit, lambda: [os.getpid()], lambda: stopped.append(True))


def test_memory_over_the_limit_stops_the_container_once(memory_file: int) -> None:
    stopped: list[bool] = []
    memory = _watched(2 << 30, stopped)
    memory.check(0.0)
    assert not memory.exceeded
    os.posix_fallocate(memory_file, 0, 4 * MIB)
    tight = _watched(1, stopped)
    tight.check(0.0)
    tight.check(1.0)
    memory.check(1.0)
    assert (tight.exceeded, memory.exceeded, stopped) == (True, False, [True])
    assert memory.peak_bytes == 4 * MIB
    memory.close()
    tight.close()


def test_checks_come_faster_the_nearer_the_limit(memory_file: int) -> None:
    far, near = _watched(64 << 30, []), _watched(64 << 30, [])
    os.posix_fallocate(memory_file, 0, MIB)
    pause = far.check(0.0)
    near._limit = MIB + near._measure_overhead(0.0) + MIB
    assert near.check(0.0) < pause
    far.close()
    near.close()


async def test_the_watch_ends_with_its_last_container(memory_file: int) -> None:
    assert memory_file
    stopped = asyncio.Event()
    memory = WatchedMemory(1, lambda: [os.getpid()], stopped.set)
    watch = MemoryWatch()
    watch.add(memory)
    async with asyncio.timeout(_PATIENCE):
        await stopped.wait()
    watch.remove(memory)
    watch.remove(memory)
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "gvisor-memory" and not task.cancelling()]


async def test_peak_memory_is_reported_without_a_cgroup() -> None:
    if why := await missing("gvisor"):
        pytest.skip(why)
    sandbox = GvisorSandbox("test", cgroups=CgroupPolicy("off"))
    holds = "import mmap, time; held = mmap.mmap(-1, 64 << 20); held.write(bytes(64 << 20)); input()"
    try:
        process = await sandbox.start(python(holds, memory_bytes=256 * MIB))
        container = next(iter(sandbox._running))
        async with asyncio.timeout(_PATIENCE):
            while container._memory.peak_bytes < 64 * MIB:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        process.stdin.write(b"\n")
        report = await process.wait()
        over = (await attempt(sandbox, python(holds, memory_bytes=32 * MIB))).report
    finally:
        await sandbox.close()
    assert report.kind is ExitKind.EXITED
    assert report.peak_memory_bytes >= 64 * MIB
    assert over.kind is ExitKind.OUT_OF_MEMORY
