"""Starts the tool's process in a pod within its limits, and reads what the container used."""

from __future__ import annotations

import base64
import ctypes
import fcntl
import math
import os
import resource
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER, _PARENT_DEATH, _DUMPABLE = 38, 22, 2, 1, 4
_FIRST_FREE = 10
_STACK, _LOCKED, _OPEN_FILES = 8 << 20, 64 << 10, 1024
# The first process of the container and the agent count too.
_OWN_PROCESSES = 2
_FIRST_KILLED = "1000"
_GROUPS = Path("/sys/fs/cgroup")
_MARK = b"toolmesh-agent"


class _Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("program", ctypes.c_char_p)]


def hide_memory() -> None:
    """Keep this process's memory and open files from others of the same user."""
    ctypes.CDLL(None).prctl(_DUMPABLE, 0, 0, 0, 0)


def start_program(request: dict[str, Any], ends: list[int]) -> subprocess.Popen[bytes]:
    """Start a program. `ends` are its standard streams and, where it has them, the pipes of its events and input.

    Raises OSError if it cannot be executed, and SubprocessError if its limits cannot be set.
    """
    ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE) for end in ends]
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    code = base64.b64decode(request["seccomp"])
    program = _Filter(len(code) // 8, code)

    def confine() -> None:
        prctl(_DUMPABLE, 1, 0, 0, 0)
        prctl(_PARENT_DEATH, signal.SIGKILL, 0, 0, 0)
        Path("/proc/self/oom_score_adj").write_text(_FIRST_KILLED)
        for number, end in enumerate(ends[3:], start=3):
            os.dup2(end, number)
        for which, limit in _limits(request):
            _set_limit(which, limit)
        prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        if prctl(_SECCOMP, _FILTER, ctypes.byref(program), 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "seccomp")

    try:
        return subprocess.Popen(
            request["argv"],
            stdin=ends[0],
            stdout=ends[1],
            stderr=ends[2],
            env=request["environment"],
            cwd="/tmp",  # noqa: S108
            preexec_fn=confine,
            pass_fds=range(3, len(ends)),
            start_new_session=True,
        )
    finally:
        for end in ends:
            os.close(end)


def _set_limit(which: int, limit: tuple[int, int]) -> None:
    try:
        resource.setrlimit(which, limit)
    except ValueError:
        # gVisor lets nobody set this one; the queues are its own, in the memory of the pod.
        if which != resource.RLIMIT_MSGQUEUE:
            raise


def _limits(request: dict[str, Any]) -> list[tuple[int, tuple[int, int]]]:
    seconds = max(1, math.ceil(request["cpu_seconds"]))
    processes = request["processes"] + _OWN_PROCESSES
    same = {
        resource.RLIMIT_FSIZE: request["file_bytes"],
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_STACK: _STACK,
        resource.RLIMIT_MEMLOCK: _LOCKED,
        resource.RLIMIT_NOFILE: _OPEN_FILES,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_NPROC: processes,
    }
    return [(resource.RLIMIT_CPU, (seconds, seconds + 1)), *((which, (each, each)) for which, each in same.items())]


def kill_others() -> bool:
    """Kill every process of the container but the first and this one. Returns whether none is left."""
    if _MARK not in Path("/proc/1/cmdline").read_bytes():
        raise RuntimeError("this is no container of a tool")
    with suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    return {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()} <= {1, os.getpid()}


def tell_first_process(number: signal.Signals) -> None:
    """Send a signal to the first process of the container."""
    if _MARK in Path("/proc/1/cmdline").read_bytes():
        with suppress(OSError):
            os.kill(1, number)


def cpu_seconds() -> float:
    """Return the processor time of the container; without a control group that of ended children."""
    with suppress(OSError, ValueError, StopIteration):
        lines = (_GROUPS / "cpu.stat").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("usage_usec")) / 1e6
    with suppress(OSError, ValueError):
        return int((_GROUPS / "cpuacct" / "cpuacct.usage").read_text()) / 1e9
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def peak_memory_bytes() -> int:
    """Return the most memory that the container held; without a control group that of the largest child."""
    for name in ("memory.peak", "memory/memory.max_usage_in_bytes"):
        with suppress(OSError, ValueError):
            return int((_GROUPS / name).read_text())
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10


def oom_kills() -> int | None:
    """Return how many processes the kernel killed for the container's memory; None where that is not known."""
    for name in ("memory.events", "memory/memory.oom_control"):
        with suppress(OSError, ValueError, StopIteration):
            lines = (_GROUPS / name).read_text().splitlines()
            return next(int(line.split()[1]) for line in lines if line.split()[0] == "oom_kill")
    return None
