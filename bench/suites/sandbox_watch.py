"""What the limits cost that no cgroup keeps: the processor time of watching idle sandboxes, and by how much a tool that
takes memory as fast as it can passes its limit before it is killed."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from bench.environment.mesh import Stage
from bench.report.measurement import Row
from services.executor.adapters.sandbox.bubblewrap.sandbox import BubblewrapSandbox
from services.executor.adapters.sandbox.gvisor.sandbox import GvisorSandbox
from services.executor.adapters.sandbox.launcher.cgroup_hierarchy import CgroupPolicy
from services.executor.adapters.sandbox.launcher.process_tree import children
from services.executor.adapters.sandbox.port import ExitKind, Plan, Sandbox, SandboxedProcess
from services.executor.adapters.sandbox.rootfs import interpreter_path

MIB = 1 << 20
WORKERS, AT_ONCE = 50, 4
IDLE_SECONDS, SETTLE_SECONDS = 20.0, 2.0
MOST_OF_A_CORE, MOST_OVERSHOOT_MIB = 0.01, 64
TRIES, LIMIT = 5, 100 * MIB
MAKERS: dict[str, Callable[..., Sandbox]] = {"bubblewrap": BubblewrapSandbox, "gVisor": GvisorSandbox}
IDLE = "import sys\nsys.stdout.write('up')\nsys.stdout.flush()\nsys.stdin.read()"
# Each process says after each MiB how many it holds: what all held when they were killed is what was read last of each.
GREEDY = """
import mmap, os, sys, time
held, block = [], b'x' * (1 << 20)
def take(name):
    for count in range(1, 1025):
        area = mmap.mmap(-1, 1 << 20)
        area.write(block)
        held.append(area)
        os.write(1, b'%d%4d' % (name, count))
others = int(sys.argv[1])
# Idle for a while, as a worker is, so that the watch looks rarely.
time.sleep(1 if others else 0)
for name in range(1, others + 1):
    if os.fork() == 0:
        take(name)
        os._exit(0)
take(0)
"""
_REPORT_BYTES = 5
_TICKS = os.sysconf("SC_CLK_TCK")
Result = TypeVar("Result")


def run(_: Stage) -> Iterator[Row]:
    """Measure both sandboxes with cgroups switched off."""
    for name, make in MAKERS.items():
        reason = asyncio.run(_with_sandbox(make, _unavailable))
        if reason:
            yield Row("sandbox-watch", f"{name} does not run here: {reason}")
            continue
        yield _idle_row(name, asyncio.run(_with_sandbox(make, _idle_share)))
        for others, case in ((0, "one process"), (3, "four processes after a second")):
            held = [asyncio.run(_with_sandbox(make, partial(_overshoot, others=others))) for _ in range(TRIES)]
            yield _overshoot_row(f"{name}, {case}", held)


async def _with_sandbox(make: Callable[..., Sandbox], measure: Callable[[Sandbox], Awaitable[Result]]) -> Result:
    sandbox = make("bench", cgroups=CgroupPolicy("off"))
    try:
        return await measure(sandbox)
    finally:
        await sandbox.close()


async def _unavailable(sandbox: Sandbox) -> str:
    return await asyncio.to_thread(sandbox.unavailable_reason)


async def _idle_share(sandbox: Sandbox) -> float:
    """Return the share of a core that the executor and its launcher use while all sandboxes are idle."""
    await _unavailable(sandbox)
    turns = asyncio.Semaphore(AT_ONCE)

    async def start() -> SandboxedProcess:
        async with turns:
            process = await sandbox.start(_plan(IDLE))
            await process.stdout.readexactly(2)
            return process

    running = await asyncio.gather(*(start() for _ in range(WORKERS)))
    await asyncio.sleep(SETTLE_SECONDS)
    before, began = _watchers_seconds(), time.monotonic()
    await asyncio.sleep(IDLE_SECONDS)
    used, passed = _watchers_seconds() - before, time.monotonic() - began
    await asyncio.gather(*(process.kill() for process in running))
    return used / passed


def _watchers_seconds() -> float:
    """Return the processor time of this process and of the launcher, without that of sandboxes."""
    launchers = [pid for pid in children(os.getpid()) if b"launcher" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return time.process_time() + sum(map(_own_seconds, launchers))


def _own_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


async def _overshoot(sandbox: Sandbox, *, others: int) -> int:
    """Return how many bytes beyond its limit a tool of several processes held when it was killed."""
    await _unavailable(sandbox)
    process = await sandbox.start(_plan(GREEDY, str(others)))
    held: dict[bytes, int] = {}
    with suppress(asyncio.IncompleteReadError):
        while report := await process.stdout.readexactly(_REPORT_BYTES):
            held[report[:1]] = int(report[1:])
    ended = await process.wait()
    # A single process may be refused by its own RLIMIT_AS instead.
    if others and ended.kind is not ExitKind.OUT_OF_MEMORY:
        raise RuntimeError(f"the tool was not killed for its memory: {ended}")
    return sum(held.values()) * MIB - LIMIT


def _plan(code: str, *arguments: str) -> Plan:
    return Plan((interpreter_path(), "-I", "-S", "-c", code, *arguments), memory_bytes=LIMIT)


def _idle_row(name: str, share: float) -> Row:
    more = {"% of a core": round(100 * share, 2), "sandboxes": WORKERS}
    row = Row("sandbox-watch", f"watching idle sandboxes, {name}", more=more)
    return row.held(f"<= {MOST_OF_A_CORE:.0%} of a core", met=share <= MOST_OF_A_CORE)


def _overshoot_row(name: str, overshoots: list[int]) -> Row:
    most = max(overshoots) / MIB
    more = {"MiB over, worst": round(most), "tries": len(overshoots), "limit MiB": LIMIT // MIB}
    row = Row("sandbox-watch", f"memory beyond the limit, {name}", more=more)
    return row.held(f"<= {MOST_OVERSHOOT_MIB} MiB", met=most <= MOST_OVERSHOOT_MIB)
