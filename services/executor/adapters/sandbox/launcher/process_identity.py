"""Identifies processes beyond their PID, which is used again: by boot, PID namespace and start time."""

from __future__ import annotations

import os
from contextlib import suppress

_START_FIELD = 19
"""The start time in /proc/PID/stat, after the command name."""


def boot_id() -> str:
    """Return eight characters that differ from boot to boot."""
    with open("/proc/sys/kernel/random/boot_id") as file:  # noqa: PTH123
        return file.read(8)


def pid_namespace() -> int:
    """Return the number of the PID namespace of this process."""
    return os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116


def start_time(pid: int) -> int:
    """Return when a process started, in clock ticks since the boot; 0 if it does not run."""
    with suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
        state, *fields = file.read().rpartition(b")")[2].split()
        return 0 if state in (b"Z", b"X") else int(fields[_START_FIELD - 1])
    return 0
