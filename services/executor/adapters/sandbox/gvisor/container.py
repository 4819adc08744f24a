"""A process in gVisor, from its first byte to its end."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.executor.adapters.sandbox.exit_report import diagnose
from services.executor.adapters.sandbox.gvisor.memory_file import MemoryFile
from services.executor.adapters.sandbox.launcher.cgroup import Cgroup
from services.executor.adapters.sandbox.launcher.process_tree import children, descendants
from services.executor.adapters.sandbox.launcher.process_usage import cpu_seconds
from services.executor.adapters.sandbox.port import ExitReport, Plan
from services.executor.adapters.sandbox.wait_pids import wait_pids

STDERR_TAIL_BYTES = 4096
_FATAL = 128
"""What `runsc` ends with when it failed itself; a process inside may end with that too, and then nothing was logged."""
_LOG_BYTES = 1 << 16
_PATIENCE = 0.05
"""How long gVisor gets to clear away by itself before all of it is killed."""
_LEFT_SECONDS = 2.0
_SOONEST_LOOK = 0.02
_MEMORY_PAUSE = 0.1
_MOST_UNMEASURED = 20
"""How many checks in a row may find no memory file while gVisor runs."""
_REFUSED = (b"Resource temporarily unavailable", b"can't start new thread")


@dataclass(frozen=True, slots=True)
class StartedContainer:
    """What was started for one process: gVisor's own first process, its bundle, and the ends of three pipes."""

    plan: Plan
    memory_limit: int
    """For everything inside together, enforced here where no control group does."""
    process: subprocess.Popen[bytes]
    folder: Path
    group: Cgroup | None
    stdin: asyncio.StreamWriter
    stdout: tuple[asyncio.StreamReader, asyncio.ReadTransport]
    stderr: tuple[asyncio.StreamReader, asyncio.ReadTransport]


class GvisorContainer:
    """A Confined of gVisor. It sees to its own end whether anyone waits for it or not."""

    def __init__(self, started: StartedContainer) -> None:
        self._started = started
        self._loop = asyncio.get_running_loop()
        self._killed, self._over, self._failed = False, "", ""
        self._memory, self._unmeasured = MemoryFile(), 0
        self._tail = b""
        self._seen_seconds = 0.0
        self._kin: list[int] = []
        self._hearing = self._loop.create_task(self._hear())
        self._limiting = self._loop.create_task(self._enforce_limits())
        self._ending = self._loop.create_task(self._see_to_the_end())

    @property
    def stdin(self) -> asyncio.StreamWriter:
        """Leads to its standard input."""
        return self._started.stdin

    @property
    def stdout(self) -> asyncio.StreamReader:
        """Brings its standard output."""
        return self._started.stdout[0]

    def when_ended(self, callback: Callable[[GvisorContainer], object]) -> None:
        """Call back when nothing of it is left."""
        self._ending.add_done_callback(lambda _: callback(self))

    async def wait(self) -> ExitReport:
        """Wait for its end. Nothing of it is left then; what it wrote can still be read."""
        return await asyncio.shield(self._ending)

    async def kill(self) -> ExitReport:
        """End it and all of gVisor around it; what it wrote is gone with it."""
        if self._started.process.poll() is None:
            self._killed = True
            self._strike()
        report = await self.wait()
        self._started.stdout[1].close()
        return report

    def _strike(self) -> None:
        """Kill what runs the process. Its parent sees that and clears away, so that nothing is left for anyone else to wait for."""
        if self._started.group is not None:
            self._started.group.lift_cpu_limit()
        if runner := self._runner():
            with suppress(ProcessLookupError):
                os.kill(runner, signal.SIGKILL)
            self._loop.call_later(_PATIENCE, self._strike_all)
        else:
            self._strike_all()

    def _strike_all(self) -> None:
        process, group = self._started.process, self._started.group
        if process.poll() is not None:
            return
        self._kin = descendants(process.pid)
        # Each of gVisor's processes is bound to end with its parent.
        process.kill()
        if group is not None:
            group.kill()

    def _runner(self) -> int:
        """The process that is the kernel of the process inside; 0 while there is none."""
        with suppress(OSError, ValueError):
            pid = int((self._started.folder / "pid").read_text())
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"runsc-sandbox"):
                return pid
        return 0

    async def _see_to_the_end(self) -> ExitReport:
        started = self._started
        await _exit_of(started.process)
        self._limiting.cancel()
        left = [*self._kin, *(started.group.pids() if started.group is not None else ())]
        if started.group is not None and left:
            started.group.kill()
        await wait_pids(left, _LEFT_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(_LEFT_SECONDS):
                await self._hearing
        started.stdin.close()
        started.stderr[1].close()
        report = diagnose(started.plan, self._facts())
        if started.group is not None:
            started.group.remove()
        await asyncio.to_thread(shutil.rmtree, started.folder, True)
        return report

    def _facts(self) -> dict[str, Any]:
        group = self._started.group or Cgroup({})
        status: int = self._started.process.returncode
        oom_kills = group.oom_kills()
        broken = status == _FATAL and not self._killed and not self._over and not oom_kills
        return {
            # Who was killed did not end by itself, whatever gVisor makes of it.
            "code": None if status < 0 or self._killed else status,
            "outer": -status if status < 0 else status << 8,
            "failed": self._failed or (_failure(self._started.folder / "log") if broken else ""),
            "over": self._over,
            "killed": self._killed,
            "grouped": sorted(group.controllers),
            "oom_kills": oom_kills,
            # The limit is gVisor's own and nobody counts for it; the words of who was refused are all there is to know.
            "refused_processes": sum(words in self._tail for words in _REFUSED),
            "cpu_seconds": group.cpu_seconds() or self._seen_seconds,
            "peak_memory": group.peak_memory(),
            "stderr_tail": base64.b64encode(self._tail).decode(),
        }

    async def _hear(self) -> None:
        """Take what it writes to its standard error as fast as it comes, and keep the last of it."""
        while heard := await self._started.stderr[0].read(1 << 16):
            self._tail = (self._tail + heard)[-STDERR_TAIL_BYTES:]

    async def _enforce_limits(self) -> None:
        """End it when its processor time is spent or, where no control group limits memory, when it holds too much of that."""
        while not self._over and not self._failed:  # noqa: ASYNC110
            await asyncio.sleep(await self._check_limits())
        self._strike()

    async def _check_limits(self) -> float:
        """Compare usage with the limits; return the seconds until the next check. gVisor's own work counts as the process's own."""
        plan, group = self._started.plan, self._started.group
        left = plan.cpu_seconds - await self._spent()
        if left <= 0:
            self._over = "cpu"
            return 0.0
        pause = max(_SOONEST_LOOK, left / max(0.01, plan.millicpus / 1000))
        if group is not None and "memory" in group.controllers:
            return pause
        self._check_memory()
        return min(pause, _MEMORY_PAUSE)

    def _check_memory(self) -> None:
        runner = self._runner()
        if not runner:
            return
        used = self._memory.used_bytes(runner)
        if used is None:
            # Fails closed: what cannot be measured would be without a limit.
            self._unmeasured += 1
            if self._unmeasured >= _MOST_UNMEASURED:
                self._failed = "its memory cannot be measured"
            return
        self._unmeasured = 0
        if used > self._started.memory_limit:
            self._over = "memory"

    async def _spent(self) -> float:
        group = self._started.group
        if group is not None and group.controllers & {"cpu", "cpuacct"}:
            return group.cpu_seconds()
        spent = await asyncio.to_thread(lambda: sum(map(cpu_seconds, children(self._started.process.pid))))
        self._seen_seconds = max(self._seen_seconds, spent)
        return self._seen_seconds


async def _exit_of(process: subprocess.Popen[bytes]) -> None:
    loop = asyncio.get_running_loop()
    exited: asyncio.Future[None] = loop.create_future()
    watched = os.pidfd_open(process.pid)
    loop.add_reader(watched, _settle, exited)
    try:
        await exited
    finally:
        loop.remove_reader(watched)
        os.close(watched)
    process.wait()


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _failure(log: Path) -> str:
    """Return what gVisor wrote before it gave up; empty if it wrote nothing, because it did not."""
    with suppress(OSError):
        written = log.read_bytes()[:_LOG_BYTES].decode("utf-8", "replace")
        entries = [line for line in written.replace("}{", "}\n{").splitlines() if '"level":"error"' in line]
        with suppress(ValueError):
            return str(json.loads(entries[-1])["msg"])[:500] if entries else ""
        return entries[-1][:500]
    return ""
