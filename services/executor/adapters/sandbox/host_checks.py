"""Detects hosts on which no sandbox can be started, and says what to change."""

from __future__ import annotations

import os
from pathlib import Path

INSIDE_GVISOR = (
    "the executor itself runs inside gVisor, which no sandbox can be started in: give its pod no runtimeClassName of "
    "gVisor, and let tools demand gVisor instead"
)
ROOT_WITHOUT_RIGHTS = (
    "as root the executor needs CAP_SYS_ADMIN outside a user namespace: run it as an ordinary user, who needs no "
    "capability (runAsUser and runAsNonRoot in a pod)"
)
_CAP_SYS_ADMIN = 21
_EVERY_USER = ["0", "0", "4294967295"]
_GVISOR_BUILD = "#1 SMP Sun Jan 10 15:06:54 PST 2016"
"""What every release of gVisor says its kernel was built on; later ones name gVisor in the release, too."""


def runs_inside_gvisor(release: str = os.uname().release, version: str = os.uname().version) -> bool:
    """Return whether the kernel of this process is gVisor."""
    return "gvisor" in release or version == _GVISOR_BUILD


def lacks_rights_of_root(uid: int | None = None, process: Path = Path("/proc/self")) -> bool:
    """Return whether this process is root without the rights that the executor uses as root: in a user namespace, or
    without CAP_SYS_ADMIN."""
    if (os.geteuid() if uid is None else uid) != 0:
        return False
    lines = (process / "status").read_text().splitlines()
    capabilities = next(int(line.split()[1], 16) for line in lines if line.startswith("CapEff:"))
    in_namespace = (process / "uid_map").read_text().split() != _EVERY_USER
    return in_namespace or not capabilities >> _CAP_SYS_ADMIN & 1


def explain(reason: str) -> str:
    """Return why a sandbox failed, with what to change if this process is root without its rights."""
    return f"{reason}; {ROOT_WITHOUT_RIGHTS}" if reason and lacks_rights_of_root() else reason
