"""Decides before anything is done whether this machine can build and run the node, and names all that is missing."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from deploy.cluster.errors import ClusterError

# Each program with the Debian package that holds it.
RUN_PROGRAMS = {"unshare": "util-linux", "nsenter": "util-linux", "mount": "mount", "umount": "mount", "ip": "iproute2"}
BUILD_PROGRAMS = {
    "go": "golang-go, 1.26 or newer",
    "gcc": "gcc",
    "pkg-config": "pkg-config",
    "apt-get": "apt",
    "dpkg-deb": "dpkg",
}
# What the build leaves, and what it needs beside it until it is done.
BUILD_BYTES = 9_000_000_000


def require_root() -> None:
    """Raises ClusterError if this process is not root."""
    if os.geteuid() != 0:
        raise ClusterError(
            "The cluster needs root: its node makes namespaces, mounts and control groups. Run this again as root, "
            "for instance with sudo."
        )


def require_machine(programs: dict[str, str], which: Callable[[str], str | None] = shutil.which) -> None:
    """Raises ClusterError that names every missing program and property of the machine."""
    problems = [f"{name} (Debian package {package})" for name, package in programs.items() if which(name) is None]
    if problems:
        problems = ["these programs are not installed: " + "; ".join(problems)]
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        problems.append(f"it runs on Linux on x86_64, not on {platform.system()} on {platform.machine()}")
    _raise("The cluster cannot run on this machine", problems)


def require_room(folder: Path, needed: int = BUILD_BYTES) -> None:
    """Raises ClusterError if the file system of a folder has too little room for the build."""
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(nearest).free
    if free < needed:
        raise ClusterError(f"The build needs {needed / 1e9:.0f} GB in {folder}, where {free / 1e9:.1f} GB are free.")


def _raise(title: str, problems: Iterable[str]) -> None:
    if text := "; ".join(problems):
        raise ClusterError(f"{title}: {text}.")
