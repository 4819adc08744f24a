"""Names the cgroup of one executor so that another can prove whose it is before it removes it.

A name says which boot, process and start time it belongs to. A group is stale only if its name is complete, it is of
this boot and this user, its process has ended and its lock is free. A group that merely begins like one is never
touched.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress

_NAME = re.compile(r"toolmesh-\w{0,64}-(?P<boot>[0-9a-f]{8})-(?P<pid>\d+)-(?P<start>\d+)-[0-9a-f]{6}(?:\.self)?", re.A)
_START_FIELD = 19
"""The start time in /proc/PID/stat, after the command name."""


def new_name(instance: str) -> str:
    """Return a new name for a cgroup of this process."""
    pid = os.getpid()
    label = re.sub(r"\W", "_", instance, flags=re.A)[:64]
    return f"toolmesh-{label}-{_boot()}-{pid}-{_start_time(pid)}-{os.urandom(3).hex()}"


def is_abandoned(path: str) -> bool:
    """Return whether a directory is the cgroup of an executor of this user and boot whose process has ended.

    A process of another PID namespace cannot be seen, so the lock of the group decides in addition.
    """
    match = _NAME.fullmatch(os.path.basename(path))  # noqa: PTH119
    if match is None or match["boot"] != _boot():
        return False
    with suppress(OSError):
        owned = os.stat(path, follow_symlinks=False).st_uid == os.geteuid()  # noqa: PTH116
        return owned and _start_time(int(match["pid"])) != int(match["start"])
    return False


def _boot() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:  # noqa: PTH123
        return file.read(8)


def _start_time(pid: int) -> int:
    """Return when a process started, in clock ticks since the boot; 0 if it does not run."""
    with suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
        state, *fields = file.read().rpartition(b")")[2].split()
        return 0 if state in (b"Z", b"X") else int(fields[_START_FIELD - 1])
    return 0
