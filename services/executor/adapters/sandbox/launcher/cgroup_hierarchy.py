"""The parent cgroups of one executor's sandboxes.

Each executor has its own directory per controller, named by its process and locked while the executor lives.
Directories of a killed executor are unlocked, and the next executor to start removes them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from services.executor.adapters.sandbox.launcher.cgroup import Cgroup, CgroupDir
from services.executor.adapters.sandbox.launcher.cgroup_owner import is_abandoned, new_name

WANTED = ("memory", "pids", "cpu", "cpuacct")
LIMITING = frozenset({"memory", "pids", "cpu"})
"""Controllers that a fully limited sandbox needs."""
_OWN_SUFFIX = ".self"
_ATTEMPTS = 5


class CgroupPolicy(NamedTuple):
    """What a deployment decided about cgroups."""

    mode: str = "preferred"
    """`required`, `preferred` or `off`."""
    parent: str = ""
    """The cgroup below which sandboxes get theirs, see `find_cgroup_dirs`."""


PREFERRED = CgroupPolicy()
"""Cgroups where possible, below that of this process."""


class CgroupHierarchy:
    """The parent directories of sandbox cgroups, one per usable controller."""

    def __init__(
        self, parents: Mapping[str, CgroupDir], locks: Mapping[str, int] | Iterable[tuple[str, int]] = ()
    ) -> None:
        self.parents = dict(parents)
        self._locks = dict(locks)
        """Every created directory with its lock, including those without a usable controller."""

    @classmethod
    def prepare(cls, instance: str, *, parent: str = "", own: Mapping[str, CgroupDir] | None = None) -> CgroupHierarchy:
        """Create this executor's directories where possible and remove stale ones. They are below `parent`, see
        `find_cgroup_dirs`. `own` overrides the detected cgroups."""
        name = new_name(instance)
        parents: dict[str, CgroupDir] = {}
        locks: dict[str, int] = {}
        for controller, cgroup_dir in (own if own is not None else find_cgroup_dirs(parent)).items():
            folder = f"{cgroup_dir.path}/{name}"
            with contextlib.suppress(OSError):
                if folder not in locks:
                    remove_stale_cgroups(cgroup_dir.path)
                    locks[folder] = _make_locked(folder)
                if not cgroup_dir.unified or _delegate(cgroup_dir.path, folder, controller):
                    parents[controller] = CgroupDir(folder, cgroup_dir.unified)
        return cls(parents, locks)

    @classmethod
    def for_policy(cls, instance: str, policy: CgroupPolicy) -> CgroupHierarchy:
        """Create the directories that a policy allows; none if it says `off`."""
        return cls({}) if policy.mode == "off" else cls.prepare(instance, parent=policy.parent)

    @property
    def missing(self) -> frozenset[str]:
        """Return the controllers that are not available here."""
        return LIMITING - self.parents.keys()

    def close(self) -> None:
        """Kill remaining processes and remove the directories."""
        for folder, lock in self._locks.items():
            remove_cgroups(folder)
            os.close(lock)
        self._locks.clear()


def find_cgroup_dirs(parent: str = "", *, groups: str | None = None, mounts: str | None = None) -> dict[str, CgroupDir]:
    """Return the cgroup below which sandboxes get theirs, per controller.

    That is the cgroup of this process; with `parent` a path below it, such as `tools`, or with a leading slash a path
    from the root of each hierarchy. `groups` and `mounts` override /proc/self/cgroup and /proc/self/mountinfo.
    """
    groups = Path("/proc/self/cgroup").read_text() if groups is None else groups
    mounts = Path("/proc/self/mountinfo").read_text() if mounts is None else mounts
    cgroup_mounts = list(_cgroup_mounts(mounts))
    dirs: dict[str, CgroupDir] = {}
    for line in groups.splitlines():
        _, controllers, own = line.split(":", 2)
        path = parent if parent.startswith("/") else f"{own.rstrip('/')}/{parent}"
        for root, point, unified, options in cgroup_mounts:
            folder = _within(path.rstrip("/") or "/", root, point)
            if folder is None or unified != (controllers == ""):
                continue
            offered = _offered(folder) if unified else set(controllers.split(",")) & options
            for controller in offered.intersection(WANTED):
                # A controller belongs to one hierarchy only, which may be mounted several times: a container has a
                # read-only mount beside one that was given to it.
                if controller not in dirs or (_is_writable(folder) and not _is_writable(dirs[controller].path)):
                    dirs[controller] = CgroupDir(folder, unified)
    return dirs


def remove_stale_cgroups(folder: str) -> None:
    """Remove the directories of executors that no longer run."""
    for entry in Path(folder).glob("toolmesh-*"):
        with contextlib.suppress(OSError):
            if not is_abandoned(str(entry)):
                continue
            if entry.name.endswith(_OWN_SUFFIX):
                # rmdir fails while an executor is in it.
                entry.rmdir()
                continue
            lock = _lock(str(entry))
            try:
                remove_cgroups(str(entry))
            finally:
                os.close(lock)


def remove_cgroups(folder: str) -> None:
    """Remove a cgroup and its children, killing the processes in them."""
    for path in (*(entry for entry in _children(folder)), folder):
        group = Cgroup({"": CgroupDir(path, unified=False)})
        if not group.remove():
            group.kill()
            group.remove()


def _children(folder: str) -> Iterator[str]:
    with contextlib.suppress(OSError):
        yield from (entry.path for entry in os.scandir(folder) if entry.is_dir())


def _make_locked(folder: str) -> int:
    """Create and lock a directory. Retries if another executor removes it as stale before it is locked."""
    for _ in range(_ATTEMPTS):
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)  # noqa: PTH102
        with contextlib.suppress(FileNotFoundError, BlockingIOError):
            lock = _lock(folder)
            if Path(folder).exists():
                return lock
            os.close(lock)
    raise FileNotFoundError(folder)


def _lock(folder: str) -> int:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _delegate(own: str, folder: str, controller: str) -> bool:
    """Enable a controller for the sandbox cgroups (v2). The kernel allows this only if the parent holds no process, so
    this process moves into a child group if it is the only one in its group."""
    if not _enable(own, controller):
        if set(Path(own, "cgroup.procs").read_text().split()) != {str(os.getpid())}:
            return False
        own_group = f"{own}/{Path(folder).name}{_OWN_SUFFIX}"
        Path(own_group).mkdir(exist_ok=True)
        Path(own_group, "cgroup.procs").write_text(str(os.getpid()))
        if not _enable(own, controller):
            return False
    return _enable(folder, controller)


def _enable(folder: str, controller: str) -> bool:
    control = Path(folder, "cgroup.subtree_control")
    try:
        if controller not in control.read_text().split():
            control.write_text(f"+{controller}")
    except OSError:
        return False
    return True


def _is_writable(folder: str) -> bool:
    return os.access(folder, os.W_OK)


def _offered(folder: str) -> set[str]:
    try:
        return set(Path(folder, "cgroup.controllers").read_text().split())
    except OSError:
        return set()


def _cgroup_mounts(mounts: str) -> Iterator[tuple[str, str, bool, set[str]]]:
    """Yield root, mount point, whether it is v2, and options of each cgroup mount."""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, (kind, _, options) = before.split(), after.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            yield fields[3], fields[4], kind == "cgroup2", set(options.split(","))


def _within(path: str, root: str, point: str) -> str | None:
    """Return the path of a group below a mount of `root`; None if the mount does not show it."""
    if "/../" in path + "/":
        return None
    if root == "/":
        return f"{point}{path}".rstrip("/")
    if path == root or path.startswith(root + "/"):
        return f"{point}{path[len(root) :]}".rstrip("/")
    return None
