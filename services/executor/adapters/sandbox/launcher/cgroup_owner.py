"""Names the cgroup of one executor so that another can prove whose it is before it removes it.

A name says which boot, process and start time it belongs to. A group is stale only if its name is complete, it is of
this boot and this user, its process has ended and its lock is free. A group that merely begins like one is never
touched.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress

from services.executor.adapters.sandbox.launcher.process_identity import boot_id, start_time

_NAME = re.compile(r"toolmesh-\w{0,64}-(?P<boot>[0-9a-f]{8})-(?P<pid>\d+)-(?P<start>\d+)-[0-9a-f]{6}(?:\.self)?", re.A)


def new_name(instance: str) -> str:
    """Return a new name for a cgroup of this process."""
    pid = os.getpid()
    label = re.sub(r"\W", "_", instance, flags=re.A)[:64]
    return f"toolmesh-{label}-{boot_id()}-{pid}-{start_time(pid)}-{os.urandom(3).hex()}"


def is_abandoned(path: str) -> bool:
    """Return whether a directory is the cgroup of an executor of this user and boot whose process has ended.

    A process of another PID namespace cannot be seen, so the lock of the group decides in addition.
    """
    match = _NAME.fullmatch(os.path.basename(path))  # noqa: PTH119
    if match is None or match["boot"] != boot_id():
        return False
    with suppress(OSError):
        owned = os.stat(path, follow_symlinks=False).st_uid == os.geteuid()  # noqa: PTH116
        return owned and start_time(int(match["pid"])) != int(match["start"])
    return False
