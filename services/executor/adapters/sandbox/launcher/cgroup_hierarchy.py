"""The part of the control group hierarchy that the sandboxes of one executor live in.

Each executor has a folder of its own in every hierarchy, named by its instance and process and locked for as long as it lives. What a
killed executor left behind is no longer locked, and the next one to start removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from services.executor.adapters.sandbox.launcher.cgroup import Cgroup, CgroupDir

WANTED = ("memory", "pids", "cpu", "cpuacct")
LIMITING = frozenset({"memory", "pids", "cpu"})
"""What must be limited for a sandbox to be limited fully."""
PREFIX = "toolmesh-"
_ASIDE = ".self"
_ATTEMPTS = 5


class CgroupHierarchy:
    """Prepared folders that sandboxes' groups are made in, one for each controller that can be used here."""

    def __init__(
        self, parents: Mapping[str, CgroupDir], locks: Mapping[str, int] | Iterable[tuple[str, int]] = ()
    ) -> None:
        self.parents = dict(parents)
        self._locks = dict(locks)
        """Every folder that was made, also where nothing could be limited in it, and its lock."""

    @classmethod
    def prepare(cls, instance: str, *, own: Mapping[str, CgroupDir] | None = None) -> CgroupHierarchy:
        """Make this executor's folders wherever that is possible, and remove those of executors that are gone. `own` names the
        groups that this process is in, where that is known."""
        name = f"{PREFIX}{re.sub(r'[^A-Za-z0-9_]', '_', instance)[:64]}-{os.getpid()}-{os.urandom(3).hex()}"
        parents: dict[str, CgroupDir] = {}
        locks: dict[str, int] = {}
        for controller, place in (own if own is not None else own_cgroup_dirs()).items():
            folder = f"{place.folder}/{name}"
            with contextlib.suppress(OSError):
                if folder not in locks:
                    remove_stale_cgroups(place.folder)
                    locks[folder] = _make_locked(folder)
                if not place.unified or _delegate(place.folder, folder, controller):
                    parents[controller] = CgroupDir(folder, place.unified)
        return cls(parents, locks)

    @property
    def missing(self) -> frozenset[str]:
        """What cannot be limited here."""
        return LIMITING - self.parents.keys()

    def close(self) -> None:
        """Remove the folders; what still is in them is ended."""
        for folder, lock in self._locks.items():
            remove_tree(folder)
            os.close(lock)
        self._locks.clear()


def own_cgroup_dirs(groups: str | None = None, mounts: str | None = None) -> dict[str, CgroupDir]:
    """Find the group that this process is in, for each controller, from what the kernel says about groups and mounts."""
    groups = Path("/proc/self/cgroup").read_text() if groups is None else groups
    mounts = Path("/proc/self/mountinfo").read_text() if mounts is None else mounts
    mounted = list(_mounted(mounts))
    found: dict[str, CgroupDir] = {}
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        for root, point, unified, options in mounted:
            folder = _within(path, root, point)
            if folder is None or unified != (controllers == ""):
                continue
            offered = _offered(folder) if unified else set(controllers.split(",")) & options
            for controller in WANTED:
                # A controller is in one hierarchy only; the first version of the groups is listed first.
                if controller in offered and controller not in found:
                    found[controller] = CgroupDir(folder, unified)
    return found


def remove_stale_cgroups(folder: str) -> None:
    """Remove the folders of executors that are gone."""
    for entry in Path(folder).glob(PREFIX + "*"):
        with contextlib.suppress(OSError):
            if entry.name.endswith(_ASIDE):
                # An executor itself lives in it, or nobody does.
                entry.rmdir()
                continue
            lock = _lock(str(entry))
            try:
                remove_tree(str(entry))
            finally:
                os.close(lock)


def remove_tree(folder: str) -> None:
    """Remove a group and those in it, ending whatever is in them."""
    for path in (*(entry for entry in _children(folder)), folder):
        group = Cgroup({"": CgroupDir(path, unified=False)})
        if not group.remove():
            group.kill()
            group.remove()


def _children(folder: str) -> Iterator[str]:
    with contextlib.suppress(OSError):
        yield from (entry.path for entry in os.scandir(folder) if entry.is_dir())


def _make_locked(folder: str) -> int:
    """Make a folder and lock it. Another executor that starts may take it for abandoned in between; then it is made again."""
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
    """Hand a controller down to the groups of sandboxes. The kernel allows that only while no process is in between, so this
    process moves into a group of its own, if it is alone in the one it is in."""
    if not _enable(own, controller):
        if set(Path(own, "cgroup.procs").read_text().split()) != {str(os.getpid())}:
            return False
        aside = f"{own}/{Path(folder).name}{_ASIDE}"
        Path(aside).mkdir(exist_ok=True)
        Path(aside, "cgroup.procs").write_text(str(os.getpid()))
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


def _offered(folder: str) -> set[str]:
    try:
        return set(Path(folder, "cgroup.controllers").read_text().split())
    except OSError:
        return set()


def _mounted(mounts: str) -> Iterator[tuple[str, str, bool, set[str]]]:
    """Yield what is shown of each hierarchy, where, whether it is of the second version, and its options."""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, (kind, _, options) = before.split(), after.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            yield fields[3], fields[4], kind == "cgroup2", set(options.split(","))


def _within(path: str, root: str, point: str) -> str | None:
    """Where a group is, under a mount that shows the hierarchy from `root` on; None where it is out of view."""
    if "/../" in path + "/":
        return None
    if root == "/":
        return f"{point}{path}".rstrip("/")
    if path == root or path.startswith(root + "/"):
        return f"{point}{path[len(root) :]}".rstrip("/")
    return None
