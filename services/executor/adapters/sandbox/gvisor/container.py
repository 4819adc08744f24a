"""One running gVisor container: its streams, limits and exit report."""

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
from services.executor.adapters.sandbox.gvisor.memory_watch import MemoryWatch, WatchedMemory
from services.executor.adapters.sandbox.launcher.cgroup import Cgroup
from services.executor.adapters.sandbox.launcher.process_tree import children, descendants
from services.executor.adapters.sandbox.launcher.process_usage import cpu_seconds
from services.executor.adapters.sandbox.pipes import ProcessPipes
from services.executor.adapters.sandbox.port import EventPipes, ExitReport, Plan
from services.executor.adapters.sandbox.wait_pids import wait_pids

STDERR_TAIL_BYTES = 16_384
_STDERR = 1
"""The place of standard error among the pipes from the process."""
_FATAL = 128
"""Exit code of `runsc` for its own failures. A process inside may use it too; then the log has no error entry."""
_LOG_BYTES = 1 << 16
_CLEANUP_SECONDS = 0.05
"""Time for gVisor to clean up by itself before all of its processes are killed."""
_EXIT_SECONDS = 2.0
_MIN_POLL_SECONDS = 0.02
_FORK_ERRORS = (b"Resource temporarily unavailable", b"can't start new thread")


@dataclass(frozen=True, slots=True)
class StartedContainer:
    """A started container: the runsc process, its bundle and its pipes."""

    plan: Plan
    memory_limit: int
    """For all processes inside together and gVisor's own; the memory watch enforces it where no cgroup does."""
    process: subprocess.Popen[bytes]
    folder: Path
    group: Cgroup | None
    terminate: list[str]
    """The command that terminates it."""
    pipes: ProcessPipes
    """Standard input; standard output and error; events and input where the plan has them."""


class GvisorContainer:
    """A SandboxedProcess of gVisor. It cleans up when it ends, even if `wait` is never called."""

    def __init__(self, started: StartedContainer, watch: MemoryWatch) -> None:
        self._started, self._watch = started, watch
        self._loop = asyncio.get_running_loop()
        self._killed, self._exceeded, self._failed = False, "", ""
        self._memory = WatchedMemory(started.memory_limit, self._sandbox_pids, self._stop_for_memory)
        self._stderr_tail = b""
        self._cpu_seconds = 0.0
        self._descendants: list[int] = []
        self._stderr_reader = self._loop.create_task(self._read_stderr())
        self._limit_watcher = self._loop.create_task(self._enforce_cpu_limit())
        if started.group is None or "memory" not in started.group.controllers:
            watch.add(self._memory)
        self._finishing = self._loop.create_task(self._finish())

    @property
    def stdin(self) -> asyncio.StreamWriter:
        """Return the writer of its standard input."""
        return self._started.pipes.writers[0]

    @property
    def stdout(self) -> asyncio.StreamReader:
        """Return the reader of its standard output."""
        return self._started.pipes.readers[0]

    @property
    def event_pipes(self) -> EventPipes | None:
        """Return the pipes of its events and its input."""
        return self._started.pipes.event_pipes

    def add_done_callback(self, callback: Callable[[GvisorContainer], object]) -> None:
        """Call back when all of its processes have ended."""
        self._finishing.add_done_callback(lambda _: callback(self))

    async def wait(self) -> ExitReport:
        """Wait until all of its processes have ended; buffered output can still be read."""
        return await asyncio.shield(self._finishing)

    async def terminate(self) -> None:
        """Send SIGTERM to the first process inside."""
        if self._started.process.poll() is not None:
            return
        null = asyncio.subprocess.DEVNULL
        command = self._started.terminate
        terminating = await asyncio.create_subprocess_exec(*command, stdin=null, stdout=null, stderr=null, env={})
        try:
            async with asyncio.timeout(_EXIT_SECONDS):
                await terminating.wait()
        except TimeoutError:
            terminating.kill()
            await terminating.wait()

    async def kill(self) -> ExitReport:
        """Kill the container and discard unread output."""
        if self._started.process.poll() is None:
            self._killed = True
            self._kill_sandbox()
        report = await self.wait()
        self._started.pipes.close_readers()
        return report

    def _kill_sandbox(self) -> None:
        """Kill the sandbox process; runsc, its parent, then cleans up. Kills everything if that takes too long."""
        if self._started.group is not None:
            self._started.group.lift_cpu_limit()
        if pid := self._sandbox_pid():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            self._loop.call_later(_CLEANUP_SECONDS, self._kill_all)
        else:
            self._kill_all()

    def _kill_all(self) -> None:
        process, group = self._started.process, self._started.group
        if process.poll() is not None:
            return
        self._descendants = descendants(process.pid)
        # Each of gVisor's processes dies with its parent.
        process.kill()
        if group is not None:
            group.kill()

    def _sandbox_pid(self) -> int:
        """Return the PID of the `runsc-sandbox` process, the user-space kernel; 0 if it does not run."""
        with suppress(OSError, ValueError):
            pid = int((self._started.folder / "pid").read_text())
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"runsc-sandbox"):
                return pid
        return 0

    def _sandbox_pids(self) -> list[int]:
        """Return gVisor's own processes, the user-space kernel first; none if it does not run."""
        pid = self._sandbox_pid()
        return [pid, *(one for one in children(self._started.process.pid) if one != pid)] if pid else []

    async def _finish(self) -> ExitReport:
        started = self._started
        await _wait_exit(started.process)
        self._limit_watcher.cancel()
        self._watch.remove(self._memory)
        remaining = [*self._descendants, *(started.group.pids() if started.group is not None else ())]
        if started.group is not None and remaining:
            started.group.kill()
        await wait_pids(remaining, _EXIT_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(_EXIT_SECONDS):
                await self._stderr_reader
        started.pipes.close_writers()
        started.pipes.close_reader(_STDERR)
        report = diagnose(started.plan, self._facts())
        if started.group is not None:
            started.group.remove()
        await asyncio.to_thread(shutil.rmtree, started.folder, True)
        return report

    def _facts(self) -> dict[str, Any]:
        group = self._started.group or Cgroup({})
        status: int = self._started.process.returncode
        oom_kills = group.oom_kills()
        broken = status == _FATAL and not self._killed and not self._exceeded and not oom_kills
        return {
            # After a kill, the exit code of runsc says nothing about the process.
            "code": None if status < 0 or self._killed else status,
            "outer": -status if status < 0 else status << 8,
            "failed": self._failed or (_logged_error(self._started.folder / "log") if broken else ""),
            "over": self._exceeded,
            "killed": self._killed,
            "grouped": sorted(group.controllers),
            "oom_kills": oom_kills,
            # gVisor does not count refused forks; the error text is the only trace.
            "refused_processes": sum(text in self._stderr_tail for text in _FORK_ERRORS),
            "cpu_seconds": group.cpu_seconds() or self._cpu_seconds,
            "peak_memory": group.peak_memory() or self._memory.peak_bytes,
            "stderr_tail": base64.b64encode(self._stderr_tail).decode(),
        }

    async def _read_stderr(self) -> None:
        """Read standard error until it ends and keep the last bytes."""
        while chunk := await self._started.pipes.readers[_STDERR].read(1 << 16):
            self._stderr_tail = (self._stderr_tail + chunk)[-STDERR_TAIL_BYTES:]

    async def _enforce_cpu_limit(self) -> None:
        """Kill the container when all of its processes, gVisor's own included, have used its CPU time."""
        plan, group = self._started.plan, self._started.group
        limited = group is not None and "cpu" in group.controllers
        fastest = max(0.01, plan.millicpus / 1000) if limited else float(os.cpu_count() or 1)
        while (remaining := plan.cpu_seconds - await self._cpu_used()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(max(_MIN_POLL_SECONDS, remaining / fastest))
        self._exceeded = self._exceeded or "cpu"
        self._kill_sandbox()

    def _stop_for_memory(self) -> None:
        if self._memory.exceeded:
            self._exceeded = self._exceeded or "memory"
        else:
            self._failed = "the memory of the container cannot be measured"
        self._kill_sandbox()

    async def _cpu_used(self) -> float:
        group = self._started.group
        if group is not None and group.controllers & {"cpu", "cpuacct"}:
            return group.cpu_seconds()
        used = await asyncio.to_thread(lambda: sum(map(cpu_seconds, children(self._started.process.pid))))
        self._cpu_seconds = max(self._cpu_seconds, used)
        return self._cpu_seconds


async def _wait_exit(process: subprocess.Popen[bytes]) -> None:
    loop = asyncio.get_running_loop()
    exited: asyncio.Future[None] = loop.create_future()
    pidfd = os.pidfd_open(process.pid)
    loop.add_reader(pidfd, _settle, exited)
    try:
        await exited
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)
    process.wait()


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _logged_error(log: Path) -> str:
    """Return the last error in gVisor's log; empty if there is none."""
    with suppress(OSError):
        written = log.read_bytes()[:_LOG_BYTES].decode("utf-8", "replace")
        entries = [line for line in written.replace("}{", "}\n{").splitlines() if '"level":"error"' in line]
        with suppress(ValueError):
            return str(json.loads(entries[-1])["msg"])[:500] if entries else ""
        return entries[-1][:500]
    return ""
