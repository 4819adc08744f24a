"""Writes the OCI bundle of one gVisor container, with the same root file system as bubblewrap."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from services.executor.adapters.sandbox.gvisor.seccomp_profile import seccomp_profile
from services.executor.adapters.sandbox.port import Plan
from services.executor.adapters.sandbox.rootfs import EGRESS_SOCKET, HOSTNAME, RootfsLayout

_OPEN_FILES = 1024
_STACK_BYTES = 8 << 20
_NAMESPACES = ("pid", "network", "ipc", "uts", "mount")


def write_bundle(folder: Path, plan: Plan, layout: RootfsLayout, *, user: int, memory_limited: bool) -> None:
    """Write config.json and a root directory with a mount point for every mount. Raises OSError or ValueError if a
    mount is not possible.

    `memory_limited` means that a cgroup limits the memory of all processes together; otherwise RLIMIT_AS limits each
    one.
    """
    root = folder / "rootfs"
    root.mkdir(mode=0o755)
    mounts = list(_mounts(plan, layout))
    for mount in mounts:
        _make_mount_point(root, mount, plan)
    # Links last, so that no mount point is created through a link that leads out of the root.
    for target, inside in layout.links:
        _inside(root, inside).symlink_to(target)
    (folder / "config.json").write_text(json.dumps(_config(plan, mounts, user, memory_limited)))


def _config(plan: Plan, mounts: list[dict[str, Any]], user: int, memory_limited: bool) -> dict[str, Any]:
    limits = [{"type": name, "soft": value, "hard": value} for name, value in _limits(plan, memory_limited)]
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": user, "gid": user},
            "args": list(plan.argv),
            "env": [f"{name}={value}" for name, value in plan.environment.items()],
            "cwd": "/tmp",  # noqa: S108
            "capabilities": {},
            "rlimits": limits,
            "noNewPrivileges": True,
        },
        "root": {"path": "rootfs", "readonly": True},
        "hostname": HOSTNAME,
        "mounts": mounts,
        "linux": {
            "namespaces": [{"type": name} for name in _NAMESPACES],
            "seccomp": seccomp_profile(loopback=plan.loopback),
        },
    }


def _limits(plan: Plan, memory_limited: bool) -> Iterator[tuple[str, int]]:
    # No RLIMIT_CPU: gVisor also counts time that a process waits for a busy host's CPU. The container's CPU time is
    # measured from outside (container.py).
    yield "RLIMIT_FSIZE", plan.file_bytes
    yield "RLIMIT_NPROC", plan.processes
    yield "RLIMIT_NOFILE", _OPEN_FILES
    yield "RLIMIT_STACK", _STACK_BYTES
    yield "RLIMIT_CORE", 0
    if not memory_limited:
        yield "RLIMIT_AS", plan.memory_bytes


def _mounts(plan: Plan, layout: RootfsLayout) -> Iterator[dict[str, Any]]:
    """Yield the mounts in order; later ones cover earlier ones."""
    yield {"destination": "/proc", "type": "proc", "source": "proc"}
    for host, inside in layout.binds:
        yield _bind(host, inside, "ro")
    yield _tmpfs("/tmp", plan.scratch_bytes, "rw", "mode=1777")  # noqa: S108
    # Replaces gVisor's defaults: an unlimited /dev/shm and a /sys that describes the machine.
    yield _tmpfs("/dev/shm", 1, "ro", "mode=0555")  # noqa: S108
    yield _tmpfs("/sys", 1, "ro", "mode=0555")
    for host, inside in plan.readable:
        yield _bind(host, inside, "ro")
    for host, inside in plan.writable:
        yield _bind(host, inside, "rw")
    if plan.egress_socket:
        yield _bind(plan.egress_socket, EGRESS_SOCKET, "ro")


def _bind(host: str, inside: str, access: str) -> dict[str, Any]:
    return {"destination": inside, "type": "bind", "source": host, "options": [access, "rbind", "nosuid", "nodev"]}


def _tmpfs(inside: str, size: int, *options: str) -> dict[str, Any]:
    shared = ["nosuid", "nodev", f"size={size}"]
    return {"destination": inside, "type": "tmpfs", "source": "tmpfs", "options": [*shared, *options]}


def _make_mount_point(root: Path, mount: dict[str, Any], plan: Plan) -> None:
    """Create a mount point, except below /dev, which gVisor mounts and populates itself."""
    mount_point = _inside(root, mount["destination"])
    if mount["type"] == "bind" and not stat.S_ISDIR(os.stat(plan.reachable(mount["source"])).st_mode):  # noqa: PTH116
        mount_point.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        mount_point.touch(mode=0o644)
    elif not mount["destination"].startswith("/dev/"):
        mount_point.mkdir(mode=0o755, parents=True, exist_ok=True)


def _inside(root: Path, path: str) -> Path:
    target = root / path.lstrip("/")
    if ".." in target.parts:
        raise ValueError("a mount path leads out of the root")
    return target
