"""One sandbox under the launcher's supervision: its processes, limits, standard error and exit facts."""

from __future__ import annotations

import base64
import json
import os
import resource
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from services.executor.adapters.sandbox.launcher import process_usage
from services.executor.adapters.sandbox.launcher.cgroup import Cgroup
from services.executor.adapters.sandbox.launcher.lone_process import LoneProcess
from services.executor.adapters.sandbox.launcher.process_tree import children, descendants, kill_all, terminate_all
from services.executor.adapters.sandbox.launcher.rlimits import limit_processes

STDERR_TAIL_BYTES = 16_384
FORK_BOMB_REFUSALS = 1000
"""Refused forks after which a sandbox counts as a fork bomb and is killed."""
_CHUNK = 1 << 16
_MIN_POLL_SECONDS, _MAX_POLL_SECONDS = 0.02, 0.5
_LONE_POLL_SECONDS = 5.0
"""Between checks of a sandbox with one process, whose memory the kernel bounds. `look_for_company` may come first."""
_FASTEST_BYTES_PER_SECOND = 2 << 30
"""How fast a process tree can take memory; a check comes before the rest of its limit can be used up."""

WatchDescriptor = Callable[[int, int, Callable[[], None]], None]
UnwatchDescriptor = Callable[[int], None]


class SupervisedSandbox:
    """Supervises one sandbox from its first process to its last."""

    def __init__(
        self,
        plan: dict[str, Any],
        pid: int,
        group: Cgroup | None,
        pipes: tuple[int, int, int],
        watch: WatchDescriptor,
        unwatch: UnwatchDescriptor,
    ) -> None:
        self.pid, self.group, self._plan = pid, group, plan
        self._stderr, self._status, self._block = pipes
        self._watch, self._unwatch = watch, unwatch
        self._inner = -1
        self.inner_pid = 0
        self._status_buffer = b""
        self._stderr_tail = b""
        self._code: int | None = None
        self._outer: int | None = None
        self._failed = self._exceeded = ""
        self._killed = self._inner_exited = False
        self._cpu, self._peak, self._memory = 0.0, 0, 0
        self._lone: LoneProcess | None = None
        self.next_poll = time.monotonic() + self._poll_interval(0.0)
        os.set_blocking(self._stderr, False)
        os.set_blocking(self._status, False)
        watch(self._stderr, select.POLLIN, self._read_stderr)
        watch(self._status, select.POLLIN, self._read_status)

    @property
    def start_known(self) -> bool:
        """Return whether it is known if the sandbox started."""
        return self.inner_pid != 0 or self._outer is not None

    @property
    def is_lone(self) -> bool:
        """Return whether its memory is bounded because it has one process: `look_for_company` must be called often."""
        return self._lone is not None

    @property
    def finished(self) -> bool:
        """Return whether no process of it is left."""
        return self._outer is not None and (self._inner < 0 or self._inner_exited)

    def kill(self, exceeded: str = "") -> None:
        """Kill the sandbox. `exceeded` names the limit it exceeded; empty if the executor asked for it."""
        if exceeded:
            self._exceeded = self._exceeded or exceeded
        elif self._outer is None:
            self._killed = True
        self._kill_processes()

    def terminate(self) -> None:
        """Send SIGTERM to the tool's first process, a child of the namespace's init."""
        if self.inner_pid and not self._inner_exited:
            terminate_all(lambda: list(children(self.inner_pid)))

    def on_reaped(self, pid: int, status: int, usage: resource.struct_rusage) -> None:
        """Record the usage of a process of this sandbox that was reaped."""
        self._cpu += usage.ru_utime + usage.ru_stime
        self._peak = max(self._peak, usage.ru_maxrss * 1024)
        if pid == self.pid:
            self._read_status()
            self._outer = status
            # Kill what the first process left running, without waiting for the kernel to end the namespace.
            self._kill_processes()

    def check_limits(self, now: float) -> None:
        """Kill the sandbox if it exceeds a limit, and schedule the next check."""
        group = self.group or Cgroup({})
        used = group.cpu_seconds() if group.counts_time else process_usage.cpu_seconds(self.inner_pid)
        if used >= self._plan["cpu_seconds"]:
            self.kill("cpu")
        elif group.refused_processes() >= FORK_BOMB_REFUSALS:
            self.kill("processes")
        elif group.oom_kills() or (self._watches_memory and self._exceeds_memory()):
            # After an OOM kill the other processes may wait forever for the killed one.
            self.kill("memory")
        if self._lone is None and self._watches_memory and self.inner_pid:
            self._lone = LoneProcess.find(self.inner_pid)
        self.next_poll = now + self._poll_interval(used)

    def look_for_company(self, now: float) -> None:
        """Check a lone sandbox at once if it has got further processes."""
        if self._lone is not None and not self._lone.is_alone():
            self._forget_lone()
            self.next_poll = min(self.next_poll, now)

    def facts(self) -> dict[str, Any]:
        """Close all descriptors and return the facts of the end."""
        self._read_stderr()
        self._forget_lone()
        counted = self.group is not None
        group = self.group or Cgroup({})
        facts = {
            "code": self._code,
            "outer": self._outer,
            "failed": self._failed,
            "over": self._exceeded,
            "killed": self._killed,
            "grouped": sorted(group.controllers) if counted else [],
            "oom_kills": group.oom_kills(),
            "refused_processes": group.refused_processes(),
            "cpu_seconds": group.cpu_seconds() or self._cpu,
            "peak_memory": group.peak_memory() or self._peak,
            "stderr_tail": base64.b64encode(self._stderr_tail).decode(),
        }
        for descriptor in (self._stderr, self._status, self._block, self._inner):
            if descriptor >= 0:
                self._unwatch(descriptor)
                os.close(descriptor)
        self._stderr = self._status = self._block = self._inner = -1
        return facts

    def _kill_processes(self) -> None:
        # Killing the first process ends its namespace, however fast it forks. The others are killed too, because they
        # compete with it for CPU time.
        if self._inner >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._inner, signal.SIGKILL)
        if self._outer is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            if self.group is not None:
                self.group.kill()
            elif self.inner_pid:
                kill_all(lambda: descendants(self.inner_pid))

    def _poll_interval(self, used: float) -> float:
        """Return the seconds until the next check: at most the time in which a polled limit could be used up."""
        if self._exceeded or self._killed:
            return float("inf")
        remaining: float = self._plan["cpu_seconds"] - used
        has_quota = self.group is not None and "cpu" in self.group.controllers
        fastest = max(0.01, self._plan["millicpus"] / 1000) if has_quota else float(os.cpu_count() or 1)
        pause = remaining / fastest
        if self._watches_memory and self._lone is None:
            pause = min(pause, (self._plan["memory_bytes"] - self._memory) / _FASTEST_BYTES_PER_SECOND)
        longest = _MAX_POLL_SECONDS if self._lone is None else _LONE_POLL_SECONDS
        return min(longest, max(_MIN_POLL_SECONDS, pause))

    @property
    def _watches_memory(self) -> bool:
        return self.group is None or "memory" not in self.group.controllers

    def _forget_lone(self) -> None:
        if self._lone is not None:
            self._lone.close()
            self._lone = None

    def _exceeds_memory(self) -> bool:
        limit: int = self._plan["memory_bytes"]
        self._memory = process_usage.memory_bytes(self.inner_pid, limit) if self.inner_pid else 0
        if self._memory <= limit:
            return False
        self._peak = max(self._peak, self._memory)
        return True

    def _read_stderr(self) -> None:
        """Read a bounded amount of standard error and keep the last bytes."""
        with suppress(BlockingIOError):
            if chunk := os.read(self._stderr, _CHUNK):
                self._stderr_tail = (self._stderr_tail + chunk)[-STDERR_TAIL_BYTES:]
            else:
                self._unwatch(self._stderr)

    def _read_status(self) -> None:
        """Read bubblewrap's status messages: the PID of the first process and the exit code."""
        with suppress(BlockingIOError):
            while chunk := os.read(self._status, _CHUNK):
                self._status_buffer += chunk
            self._unwatch(self._status)
        while b"\n" in self._status_buffer:
            line, self._status_buffer = self._status_buffer.split(b"\n", 1)
            message = json.loads(line)
            if "child-pid" in message:
                self._hold_init(message["child-pid"])
            self._code = message.get("exit-code", self._code)
            self._failed = message.get("failed", self._failed)

    def _hold_init(self, pid: int) -> None:
        self.inner_pid = pid
        try:
            inner = os.pidfd_open(pid)
        except ProcessLookupError:
            inner = -1
        except OSError as error:
            # Without a pidfd its end would go unnoticed. It is killed together with bubblewrap.
            self._failed, inner = f"pidfd_open of the first process failed: {error.strerror}", -1
        if inner >= 0 and _parent(pid) not in (self.pid, os.getpid()):
            # It has ended and its PID was reused.
            os.close(inner)
        elif inner >= 0:
            self._inner = inner
            self._watch(self._inner, select.POLLIN, self._on_init_exit)
            if self._block >= 0:
                self._unblock(pid)
        if self._killed or self._exceeded or self._failed:
            self._kill_processes()

    def _unblock(self, pid: int) -> None:
        """Set the process limit of the blocked bubblewrap and let it continue."""
        try:
            limit_processes(pid, self._plan["processes"])
            os.write(self._block, b"1")
        except OSError as error:
            self._failed = f"the process limit could not be set: {error.strerror}"

    def _on_init_exit(self) -> None:
        self._inner_exited = True
        self._unwatch(self._inner)


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return 0
