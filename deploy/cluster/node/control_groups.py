"""Control groups of the node: one below the caller's own in every hierarchy of version 1, so that its limits hold.

Their name must not begin with `toolmesh-`: executors remove what is left in groups of that name.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.cluster.errors import ClusterError

NEEDED = frozenset({"cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "pids"})
# A group is busy for a moment after its last process ended.
_REMOVE_SECONDS = 20.0
_PAUSE_SECONDS = 0.05


@dataclass(frozen=True)
class Hierarchy:
    """One mounted hierarchy: its mount options (`cpu,cpuacct`, `name=systemd`) and the caller's group in it."""

    options: str
    own_group: Path

    @property
    def controllers(self) -> Sequence[str]:
        return self.options.split(",")


def parse_hierarchies(cgroup: str, mountinfo: str) -> list[Hierarchy]:
    """Returns the hierarchies of version 1 from the text of /proc/self/cgroup and /proc/self/mountinfo."""
    mounts = _mounts(mountinfo)
    hierarchies = []
    for line in cgroup.splitlines():
        _, options, path = line.split(":", 2)
        if options and frozenset(options.split(",")) in mounts:
            root, point = mounts[frozenset(options.split(","))]
            relative = os.path.relpath(path, root)
            hierarchies.append(Hierarchy(options, point if relative.startswith(".") else point / relative))
    return hierarchies


def find_hierarchies() -> list[Hierarchy]:
    """Returns the hierarchies of this machine. Raises ClusterError if one that the kubelet needs is missing."""
    hierarchies = parse_hierarchies(Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text())
    missing = NEEDED - {name for hierarchy in hierarchies for name in hierarchy.controllers}
    if missing:
        names = ", ".join(sorted(missing))
        raise ClusterError(
            f"The node needs control groups of version 1; this machine has none for {names}. On a machine with version "
            "2 use its own Kubernetes, such as kind, and `kubectl apply -k`."
        )
    return hierarchies


def group_name(state: Path) -> str:
    """Returns the name of the groups of a state folder's node. Each checkout has its own."""
    return f"tmnode-{hashlib.sha256(str(state.resolve()).encode()).hexdigest()[:12]}"


def make_groups(groups: Sequence[Path]) -> None:
    """Makes the groups. One of cpuset takes no process before it has the processors and memory of its parent."""
    for group in groups:
        group.mkdir(exist_ok=True)
        for name in ("cpuset.cpus", "cpuset.mems"):
            if (group.parent / name).exists():
                (group / name).write_text((group.parent / name).read_text())


def remove_groups(groups: Sequence[Path]) -> None:
    """Removes the groups and all below them. Raises ClusterError if one stays busy."""
    deadline = time.monotonic() + _REMOVE_SECONDS
    for group in groups:
        while not _remove_tree(group):
            if time.monotonic() > deadline:
                raise ClusterError(f"The control group {group} still has processes: end them and run this again.")
            time.sleep(_PAUSE_SECONDS)


def _remove_tree(group: Path) -> bool:
    try:
        for folder, _, _ in os.walk(group, topdown=False):
            Path(folder).rmdir()
    except FileNotFoundError:
        return not group.exists()
    except OSError:
        return False
    return True


def _mounts(mountinfo: str) -> dict[frozenset[str], tuple[str, Path]]:
    """Returns root and mount point of each hierarchy by its controllers; the first mount of a hierarchy counts."""
    mounts: dict[frozenset[str], tuple[str, Path]] = {}
    for line in mountinfo.splitlines():
        head, _, tail = line.partition(" - ")
        kind, _, options = tail.split(" ", 2)
        if kind == "cgroup":
            fields = head.split(" ")
            controllers = frozenset(options.split(",")) - {"rw", "ro", "xattr", "clone_children", "none"}
            mounts.setdefault(controllers, (fields[3], Path(fields[4])))
    return mounts
