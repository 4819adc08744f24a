"""The node's view of the file system: the machine's, with a /sys, a /run and a /var of its own.

Nothing is made on the machine, not even an empty folder: changes of /var go to the state folder, /run is in memory.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from deploy.cluster.addresses import NODE, NODE_ADDRESS
from deploy.cluster.node.components import KERNEL_SETTINGS
from deploy.cluster.state_folder import StateFolder

CONTROL_GROUPS = Path("/sys/fs/cgroup")
SETTINGS = Path("/run/kernel-settings")
_HOSTS = Path("/run/hosts")


def mount_all(state: StateFolder, hierarchies: Sequence[str]) -> None:
    """Mounts everything, in the mount namespace of the node. `hierarchies` are mount options such as `cpu,cpuacct`."""
    _mount("--make-rprivate", "/")
    _mount_sys(hierarchies)
    _mount("-t", "tmpfs", "-o", "mode=0755", "tmpfs", "/run")
    (Path("/run") / "lock").mkdir()
    _mount_var(state)
    _HOSTS.write_text(f"127.0.0.1 localhost\n{NODE_ADDRESS} {NODE}\n")
    _mount("--bind", str(_HOSTS), "/etc/hosts")
    SETTINGS.mkdir()
    for name, value in KERNEL_SETTINGS.items():
        (SETTINGS / name.replace("/", ".")).write_text(f"{value}\n")
    # The kubelet's mounts must reach the containers, which have mount namespaces of their own.
    _mount("--make-rshared", "/")


def _mount_sys(hierarchies: Sequence[str]) -> None:
    """Mounts /sys again: with the devices of this network namespace, and control groups from the node's own down."""
    _run("umount", "--recursive", "--lazy", "/sys")
    _mount("-t", "sysfs", "sysfs", "/sys")
    _mount("-t", "tmpfs", "-o", "mode=0755", "tmpfs", str(CONTROL_GROUPS))
    for options in hierarchies:
        folder = CONTROL_GROUPS / options.removeprefix("name=")
        folder.mkdir()
        chosen = f"none,{options}" if options.startswith("name=") else options
        _mount("-t", "cgroup", "-o", chosen, "cgroup", str(folder))
        for name in options.split(","):
            if name != folder.name and not name.startswith("name="):
                (CONTROL_GROUPS / name).symlink_to(folder.name)


def _mount_var(state: StateFolder) -> None:
    """Mounts a writable copy of /var. The kubelet's folder is on the disk itself, whose mounts can map user ids."""
    upper, work = state.var / "changes", state.var / "work"
    for folder in (upper / "lib" / "kubelet", upper / "log", work):
        folder.mkdir(parents=True, exist_ok=True)
    _mount("-t", "overlay", "-o", f"lowerdir=/var,upperdir={upper},workdir={work}", "overlay", "/var")
    _mount("--bind", str(state.kubelet), "/var/lib/kubelet")


def _mount(*arguments: str) -> None:
    _run("mount", *arguments)


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
