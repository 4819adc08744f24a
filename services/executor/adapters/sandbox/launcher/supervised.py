"""One sandbox as the launcher sees it: its processes, what it complained of, and the facts of its end. Standard library only."""

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
from services.executor.adapters.sandbox.launcher.process_tree import descendants, kill_all
from services.executor.adapters.sandbox.launcher.rlimits import limit_processes

STDERR_TAIL_BYTES = 4096
FORK_BOMB_REFUSALS = 1000
"""Whoever asks for one process too many this often does not mean to stop asking."""
_CHUNK = 1 << 16
_MIN_POLL_SECONDS, _MAX_POLL_SECONDS = 0.02, 0.5

Watch = Callable[[int, int, Callable[[], None]], None]
Forget = Callable[[int], None]


class SupervisedSandbox:
    """A sandbox from its first process to its last."""

    def __init__(
        self,
        plan: dict[str, Any],
        pid: int,
        group: Cgroup | None,
        pipes: tuple[int, int, int],
        watch: Watch,
        forget: Forget,
    ) -> None:
        self.pid, self.group, self._plan = pid, group, plan
        self._stderr, self._status, self._block = pipes
        self._watch, self._forget = watch, forget
        self._inner = -1
        self.inner_pid = 0
        self._said = b""
        self._tail = b""
        self._code: int | None = None
        self._outer: int | None = None
        self._failed = self._over = ""
        self._killed = self._inner_gone = False
        self._cpu, self._peak = 0.0, 0
        self.next_poll = time.monotonic() + self._rest(0.0)
        os.set_blocking(self._stderr, False)
        os.set_blocking(self._status, False)
        watch(self._stderr, select.POLLIN, self._hear)
        watch(self._status, select.POLLIN, self._learn)

    @property
    def settled(self) -> bool:
        """True once it is known whether it began."""
        return self.inner_pid != 0 or self._outer is not None

    @property
    def over(self) -> bool:
        """True once nothing of it is left."""
        return self._outer is not None and (self._inner < 0 or self._inner_gone)

    def kill(self, over: str = "") -> None:
        """End all of it. `over` names the limit that it went beyond; otherwise it is because we wanted to."""
        if over:
            self._over = self._over or over
        elif self._outer is None:
            self._killed = True
        self._strike()

    def reaped(self, pid: int, status: int, spent: resource.struct_rusage) -> None:
        """Take note of one of its processes that has ended."""
        self._cpu += spent.ru_utime + spent.ru_stime
        self._peak = max(self._peak, spent.ru_maxrss * 1024)
        if pid == self.pid:
            self._learn()
            self._outer = status
            # What its first process left running ends with it; this is quicker than to wait for the kernel to notice.
            self._strike()

    def look(self, now: float) -> None:
        """Compare what it used and asked for with what it may, and decide when to look again."""
        group = self.group or Cgroup({})
        used = group.cpu_seconds() if group.counts_time else process_usage.cpu_seconds(self.inner_pid)
        if used >= self._plan["cpu_seconds"]:
            self.kill("cpu")
        elif group.refused_processes() >= FORK_BOMB_REFUSALS:
            self.kill("processes")
        elif group.oom_kills() or ("memory" not in group.controllers and self._beyond_memory()):
            # What has lost a part of itself may wait for that part for ever.
            self.kill("memory")
        self.next_poll = now + self._rest(used)

    def facts(self) -> dict[str, Any]:
        """Close everything and return what is known about the end."""
        self._hear()
        counted = self.group is not None
        group = self.group or Cgroup({})
        known = {
            "code": self._code,
            "outer": self._outer,
            "failed": self._failed,
            "over": self._over,
            "killed": self._killed,
            "grouped": sorted(group.controllers) if counted else [],
            "oom_kills": group.oom_kills(),
            "refused_processes": group.refused_processes(),
            "cpu_seconds": group.cpu_seconds() or self._cpu,
            "peak_memory": group.peak_memory() or self._peak,
            "stderr_tail": base64.b64encode(self._tail).decode(),
        }
        for descriptor in (self._stderr, self._status, self._block, self._inner):
            if descriptor >= 0:
                self._forget(descriptor)
                os.close(descriptor)
        self._stderr = self._status = self._block = self._inner = -1
        return known

    def _strike(self) -> None:
        # The first process inside takes everything in its namespace with it, however fast that forks; the others are told too,
        # because they would keep it from its turn.
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

    def _rest(self, used: float) -> float:
        """How long it need not be looked at: no longer than it takes to use up its processor time."""
        if self._over or self._killed:
            return float("inf")
        left: float = self._plan["cpu_seconds"] - used
        quota: float = self._plan["millicpus"] / 1000
        return min(_MAX_POLL_SECONDS, max(_MIN_POLL_SECONDS, left / max(0.01, quota)))

    def _beyond_memory(self) -> bool:
        limit: int = self._plan["memory_bytes"]
        return bool(self.inner_pid) and process_usage.memory_bytes(self.inner_pid, limit) > limit

    def _hear(self) -> None:
        """Take what it wrote to its standard error and keep the last of it, a bounded amount at a time."""
        with suppress(BlockingIOError):
            if heard := os.read(self._stderr, _CHUNK):
                self._tail = (self._tail + heard)[-STDERR_TAIL_BYTES:]
            else:
                self._forget(self._stderr)

    def _learn(self) -> None:
        """Read what bubblewrap says: the first process inside, and how the tool ended."""
        with suppress(BlockingIOError):
            while heard := os.read(self._status, _CHUNK):
                self._said += heard
            self._forget(self._status)
        while b"\n" in self._said:
            said, self._said = self._said.split(b"\n", 1)
            fact = json.loads(said)
            if "child-pid" in fact:
                self._meet(fact["child-pid"])
            self._code = fact.get("exit-code", self._code)
            self._failed = fact.get("failed", self._failed)

    def _meet(self, pid: int) -> None:
        self.inner_pid = pid
        try:
            inner = os.pidfd_open(pid)
        except ProcessLookupError:
            inner = -1
        except OSError as error:
            # Without a hold on it nobody would know its end. It goes with bubblewrap.
            self._failed, inner = f"its first process could not be held: {error.strerror}", -1
        if inner >= 0 and _parent(pid) not in (self.pid, os.getpid()):
            # It has ended already, and its number is somebody else's.
            os.close(inner)
        elif inner >= 0:
            self._inner = inner
            self._watch(self._inner, select.POLLIN, self._see_gone)
            if self._block >= 0:
                self._let_go(pid)
        if self._killed or self._over or self._failed:
            self._strike()

    def _let_go(self, pid: int) -> None:
        """Bind bubblewrap, which waits, to its number of processes, and let it go on."""
        try:
            limit_processes(pid, self._plan["processes"])
            os.write(self._block, b"1")
        except OSError as error:
            self._failed = f"processes could not be limited: {error.strerror}"

    def _see_gone(self) -> None:
        self._inner_gone = True
        self._forget(self._inner)


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return 0
