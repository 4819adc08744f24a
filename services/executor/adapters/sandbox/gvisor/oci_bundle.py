"""What gVisor is told about one process: an OCI bundle, made of the same view of the machine as every other sandbox's."""

from __future__ import annotations

import json
import math
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


def write_bundle(folder: Path, plan: Plan, view: RootfsLayout, *, user: int, memory_limited: bool) -> None:
    """Write a bundle: its description, and an empty root with a place for everything that is shown in it. Raises OSError or ValueError
    when something cannot be shown.

    With `memory_limited` a control group limits the memory of all its processes; otherwise each is limited by itself.
    """
    root = folder / "rootfs"
    root.mkdir(mode=0o755)
    mounts = list(_mounts(plan, view))
    for mount in mounts:
        _make_place(root, mount)
    # Last, so that no place is ever made through one: a link may lead out of the root.
    for target, inside in view.links:
        _inside(root, inside).symlink_to(target)
    (folder / "config.json").write_text(json.dumps(_description(plan, mounts, user, memory_limited)))


def _description(plan: Plan, mounts: list[dict[str, Any]], user: int, memory_limited: bool) -> dict[str, Any]:
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
        "linux": {"namespaces": [{"type": each} for each in _NAMESPACES], "seccomp": seccomp_profile()},
    }


def _limits(plan: Plan, memory_limited: bool) -> Iterator[tuple[str, int]]:
    yield "RLIMIT_FSIZE", plan.file_bytes
    yield "RLIMIT_NPROC", plan.processes
    yield "RLIMIT_CPU", max(1, math.ceil(plan.cpu_seconds))
    yield "RLIMIT_NOFILE", _OPEN_FILES
    yield "RLIMIT_STACK", _STACK_BYTES
    yield "RLIMIT_CORE", 0
    if not memory_limited:
        yield "RLIMIT_AS", plan.memory_bytes


def _mounts(plan: Plan, view: RootfsLayout) -> Iterator[dict[str, Any]]:
    """List what is shown, in order: later ones lie over earlier ones."""
    yield {"destination": "/proc", "type": "proc", "source": "proc"}
    for host, inside in view.binds:
        yield _bind(host, inside, "ro")
    yield _memory("/tmp", plan.scratch_bytes, "rw", "mode=1777")  # noqa: S108
    # gVisor would put something of its own there: one that everyone may fill, and one that says much about machines.
    yield _memory("/dev/shm", 1, "ro", "mode=0555")  # noqa: S108
    yield _memory("/sys", 1, "ro", "mode=0555")
    for host, inside in plan.readable:
        yield _bind(host, inside, "ro")
    for host, inside in plan.writable:
        yield _bind(host, inside, "rw")
    if plan.egress_socket:
        yield _bind(plan.egress_socket, EGRESS_SOCKET, "ro")


def _bind(host: str, inside: str, access: str) -> dict[str, Any]:
    return {"destination": inside, "type": "bind", "source": host, "options": [access, "rbind", "nosuid", "nodev"]}


def _memory(inside: str, size: int, *options: str) -> dict[str, Any]:
    shared = ["nosuid", "nodev", f"size={size}"]
    return {"destination": inside, "type": "tmpfs", "source": "tmpfs", "options": [*shared, *options]}


def _make_place(root: Path, mount: dict[str, Any]) -> None:
    """Make a place to mount on, unless it lies in something that is itself shown: there it exists, or is made by gVisor."""
    place = _inside(root, mount["destination"])
    if mount["type"] == "bind" and not stat.S_ISDIR(os.stat(mount["source"]).st_mode):  # noqa: PTH116
        place.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        place.touch(mode=0o644)
    elif not mount["destination"].startswith("/dev/"):
        place.mkdir(mode=0o755, parents=True, exist_ok=True)


def _inside(root: Path, path: str) -> Path:
    place = root / path.lstrip("/")
    if ".." in place.parts:
        raise ValueError("a place inside leads outside")
    return place
