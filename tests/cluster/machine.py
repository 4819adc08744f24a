"""What a node could leave on the machine, read before and after."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

from deploy.cluster.node.components import KERNEL_SETTINGS
from deploy.cluster.node.control_groups import find_hierarchies

# Folders that Kubernetes and containerd make where they are not confined.
_FOLDERS = ("/var/lib", "/var/log", "/run", "/etc", "/opt", "/")
_NAMES = ("kubelet", "containerd", "cni", "pods", "containers", "k8s", "calico", "netns")


@dataclass(frozen=True)
class MachineState:
    """Devices, mounts, folders, kernel settings and control groups of the node's name."""

    devices: frozenset[str]
    mounts: frozenset[str]
    folders: frozenset[str]
    settings: tuple[str, ...]


def read_machine() -> MachineState:
    """Reads the machine's state."""
    folders = {str(Path(folder) / name) for folder in _FOLDERS for name in _NAMES if (Path(folder) / name).exists()}
    return MachineState(
        frozenset(name for _, name in socket.if_nameindex()),
        frozenset(line.split(" ", 5)[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()),
        frozenset(folders),
        tuple((Path("/proc/sys") / name).read_text() for name in KERNEL_SETTINGS),
    )


def groups_named(name: str) -> list[str]:
    """Returns the control groups of a name below the caller's own."""
    groups = [hierarchy.own_group / name for hierarchy in find_hierarchies()]
    return [str(group) for group in groups if group.exists()]


def processes_of(state: Path) -> list[str]:
    """Returns the command lines of running processes that name a state folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode("utf-8", "replace").split("\0")
        except OSError:
            continue
        found += [" ".join(words)] if any(str(state) in word for word in words) else []
    return found
