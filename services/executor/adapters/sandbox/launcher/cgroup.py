"""Control groups (cgroups): kernel limits on memory, processes and CPU time of a whole process tree.

Supports cgroup v2, v1 and hybrid setups. Groups are created below the group of this process, so its own limits still
apply.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import NamedTuple

from services.executor.adapters.sandbox.launcher.process_tree import kill_all

_PERIOD_US, _LEAST_QUOTA_US = 20_000, 1_000
_LOW_WEIGHT, _HIGH_WEIGHT = ("256", "25"), ("262144", "10000")
"""CPU weight in cgroup v1 and v2: below the mesh itself while running, above everything while being killed."""


class CgroupDir(NamedTuple):
    """The directory of a cgroup for one controller."""

    path: str
    unified: bool
    """True for cgroup v2."""


class Cgroup:
    """The cgroup of one sandbox. `controllers` lists what it can limit and count on this machine."""

    def __init__(self, dirs: Mapping[str, CgroupDir]) -> None:
        self._dirs = dict(dirs)

    @classmethod
    def create(
        cls, parents: Mapping[str, CgroupDir], name: str, *, memory: int, processes: int, millicpus: int
    ) -> Cgroup:
        """Create a group below `parents`. Raises OSError if a limit cannot be set, and removes the group then."""
        group = cls(
            {
                controller: CgroupDir(f"{cgroup_dir.path}/{name}", cgroup_dir.unified)
                for controller, cgroup_dir in parents.items()
            }
        )
        try:
            for path in group.paths:
                os.mkdir(path)  # noqa: PTH102
            group._limit(memory, processes, millicpus)
        except OSError:
            group.remove()
            raise
        return group

    @property
    def controllers(self) -> frozenset[str]:
        """Return the controllers in use, a subset of `memory`, `pids`, `cpu` and `cpuacct`."""
        return frozenset(self._dirs)

    @property
    def counts_time(self) -> bool:
        """Return whether CPU time is counted; cgroup v2 always does."""
        return "cpuacct" in self._dirs or any(cgroup_dir.unified for cgroup_dir in self._dirs.values())

    @property
    def paths(self) -> list[str]:
        """Return its directories without duplicates."""
        return list(dict.fromkeys(cgroup_dir.path for cgroup_dir in self._dirs.values()))

    def add(self, pid: int) -> None:
        """Move a process into the group (0 for the calling process). Its future children belong to the group too."""
        for path in self.paths:
            _write(f"{path}/cgroup.procs", str(pid))

    def oom_kills(self) -> int:
        """Return how many processes the OOM killer has killed."""
        return self._count("memory", "memory.events", "memory.oom_control", "oom_kill")

    def refused_processes(self) -> int:
        """Return how many forks failed because of the process limit."""
        return self._count("pids", "pids.events", "pids.events", "max")

    def cpu_seconds(self) -> float:
        """Return the CPU time of all processes that were ever in the group; 0 if not counted."""
        if cgroup_dir := self._dirs.get("cpuacct"):
            return _number(f"{cgroup_dir.path}/cpuacct.usage") / 1e9
        for cgroup_dir in self._dirs.values():
            if cgroup_dir.unified:
                return _field(f"{cgroup_dir.path}/cpu.stat", "usage_usec") / 1e6
        return 0.0

    def peak_memory(self) -> int:
        """Return the peak memory of the group; 0 if not counted."""
        cgroup_dir = self._dirs.get("memory")
        if cgroup_dir is None:
            return 0
        return _number(f"{cgroup_dir.path}/{'memory.peak' if cgroup_dir.unified else 'memory.max_usage_in_bytes'}")

    def pids(self) -> list[int]:
        """Return the processes in the group."""
        pids: set[int] = set()
        for path in self.paths:
            pids.update(int(line) for line in _read(f"{path}/cgroup.procs").split())
        return sorted(pids)

    def kill(self) -> None:
        """Kill every process in the group and, where `pids` is available, prevent new ones."""
        self.lift_cpu_limit()
        if cgroup_dir := self._dirs.get("pids"):
            with contextlib.suppress(OSError):
                _write(f"{cgroup_dir.path}/pids.max", "0")
        for cgroup_dir in self._dirs.values():
            if cgroup_dir.unified:
                with contextlib.suppress(OSError):
                    _write(f"{cgroup_dir.path}/cgroup.kill", "1")
        kill_all(self.pids)

    def lift_cpu_limit(self) -> None:
        """Remove the CPU limit: exiting needs CPU time too, and a quota would delay it."""
        if cgroup_dir := self._dirs.get("cpu"):
            names = ("cpu.max", "cpu.weight") if cgroup_dir.unified else ("cpu.cfs_quota_us", "cpu.shares")
            for name, text in zip(
                names, ("max" if cgroup_dir.unified else "-1", _HIGH_WEIGHT[cgroup_dir.unified]), strict=True
            ):
                with contextlib.suppress(OSError):
                    _write(f"{cgroup_dir.path}/{name}", text)

    def remove(self) -> bool:
        """Remove the group; return False while a process is still in it."""
        removed = True
        for path in self.paths:
            try:
                os.rmdir(path)  # noqa: PTH106
            except FileNotFoundError:
                continue
            except OSError:
                removed = False
        return removed

    def _limit(self, memory: int, processes: int, millicpus: int) -> None:
        if cgroup_dir := self._dirs.get("memory"):
            _limit_memory(cgroup_dir, memory)
        if cgroup_dir := self._dirs.get("pids"):
            _write(f"{cgroup_dir.path}/pids.max", str(processes))
        if cgroup_dir := self._dirs.get("cpu"):
            _limit_cpu(cgroup_dir, millicpus)

    def _count(self, controller: str, unified: str, first: str, field: str) -> int:
        cgroup_dir = self._dirs.get(controller)
        return _field(f"{cgroup_dir.path}/{unified if cgroup_dir.unified else first}", field) if cgroup_dir else 0


def _limit_cpu(cgroup_dir: CgroupDir, millicpus: int) -> None:
    """Set the CPU quota over a short period, so that a throttled process is not stopped for long."""
    period = max(_PERIOD_US, _LEAST_QUOTA_US * 1000 // max(1, millicpus))
    quota = max(_LEAST_QUOTA_US, period * millicpus // 1000)
    if cgroup_dir.unified:
        _write(f"{cgroup_dir.path}/cpu.max", f"{quota} {period}")
        _write(f"{cgroup_dir.path}/cpu.weight", _LOW_WEIGHT[cgroup_dir.unified])
    else:
        _write(f"{cgroup_dir.path}/cpu.cfs_period_us", str(period))
        _write(f"{cgroup_dir.path}/cpu.cfs_quota_us", str(quota))
        _write(f"{cgroup_dir.path}/cpu.shares", _LOW_WEIGHT[cgroup_dir.unified])


def _limit_memory(cgroup_dir: CgroupDir, memory: int) -> None:
    """Limit memory and swap together: with swap left over, the memory limit would not hold."""
    if cgroup_dir.unified:
        _write(f"{cgroup_dir.path}/memory.max", str(memory))
        optional = {"memory.swap.max": "0", "memory.oom.group": "1"}
    else:
        _write(f"{cgroup_dir.path}/memory.limit_in_bytes", str(memory))
        optional = {"memory.memsw.limit_in_bytes": str(memory)}
    for name, text in optional.items():
        with contextlib.suppress(FileNotFoundError):
            _write(f"{cgroup_dir.path}/{name}", text)


def _write(path: str, text: str) -> None:
    # A file object would write again on close and hide the first error behind a second.
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _read(path: str) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(descriptor, 1 << 16).decode("ascii", "replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def _number(path: str) -> int:
    text = _read(path).strip()
    return int(text) if text.isdigit() else 0


def _field(path: str, name: str) -> int:
    for line in _read(path).splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.isdigit():
            return int(value)
    return 0
