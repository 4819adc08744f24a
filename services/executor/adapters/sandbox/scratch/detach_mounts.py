"""Unmounts what a killed process left mounted below its directory, which could not be removed otherwise.

gVisor mounts a network namespace on a file of its state directory and leaves it there when it is killed. Containers run
in mount namespaces of their own, so such a mount is left only by a release that did not do that yet.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from services.executor.adapters.sandbox.launcher.syscalls import detach_mount

_MOUNTINFO = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(r"\\([0-7]{3})")


def detach_mounts(folder: Path) -> None:
    """Unmount everything below a directory, the last mount first. Keeps what cannot be unmounted."""
    below = f"{folder.resolve()}/"
    for line in reversed(_MOUNTINFO.read_text().splitlines()):
        point = _ESCAPED.sub(lambda found: chr(int(found[1], 8)), line.split()[4])
        if point.startswith(below):
            with suppress(OSError):
                detach_mount(point)
