"""Groups of processes that share one limit: memory, processes and processor time of a whole tree, kept by the syscalls.

Works with the second version of the kernel's control groups, with the first, and with any mixture of them, in the part of the
hierarchy that this process already is in: it never leaves limits that it is under itself. Standard library only: the launcher loads
this.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import NamedTuple

from services.executor.adapters.sandbox.launcher.process_tree import kill_all

_PERIOD_US, _LEAST_QUOTA_US = 20_000, 1_000
_MODEST, _URGENT = ("256", "25"), ("262144", "10000")
"""Shares of the processor beside others, in the first and the second version: less than the mesh itself, and more than anybody."""


class CgroupDir(NamedTuple):
    """A folder of the hierarchy that can limit something."""

    folder: str
    unified: bool
    """True in the second version of control groups."""


class Cgroup:
    """The group of one sandbox. What it cannot limit or count on this machine is not limited or counted: ask `controllers` first."""

    def __init__(self, places: Mapping[str, CgroupDir]) -> None:
        self._places = dict(places)

    @classmethod
    def create(
        cls, parents: Mapping[str, CgroupDir], name: str, *, memory: int, processes: int, millicpus: int
    ) -> Cgroup:
        """Make a group below prepared ones. Raises OSError when a limit could not be set; then nothing is left behind."""
        group = cls({what: CgroupDir(f"{place.folder}/{name}", place.unified) for what, place in parents.items()})
        try:
            for folder in group.folders:
                os.mkdir(folder)  # noqa: PTH102
            group._limit(memory, processes, millicpus)
        except OSError:
            group.remove()
            raise
        return group

    @property
    def controllers(self) -> frozenset[str]:
        """What it limits or counts: some of `memory`, `pids`, `cpu` and `cpuacct`."""
        return frozenset(self._places)

    @property
    def counts_time(self) -> bool:
        """True if it counts processor time: the second version always does."""
        return "cpuacct" in self._places or any(place.unified for place in self._places.values())

    @property
    def folders(self) -> list[str]:
        """Its folders, each once."""
        return list(dict.fromkeys(place.folder for place in self._places.values()))

    def add(self, pid: int) -> None:
        """Take a process into the group; 0 for the one that asks. What it starts from then on is in the group too."""
        for folder in self.folders:
            _write(f"{folder}/cgroup.procs", str(pid))

    def oom_kills(self) -> int:
        """How many processes the kernel ended because the memory of the group was used up."""
        return self._count("memory", "memory.events", "memory.oom_control", "oom_kill")

    def refused_processes(self) -> int:
        """How often a process could not be started because there were as many as may be."""
        return self._count("pids", "pids.events", "pids.events", "max")

    def cpu_seconds(self) -> float:
        """Processor time of everything that ever was in the group; 0 where it is not counted."""
        if place := self._places.get("cpuacct"):
            return _number(f"{place.folder}/cpuacct.usage") / 1e9
        for place in self._places.values():
            if place.unified:
                return _field(f"{place.folder}/cpu.stat", "usage_usec") / 1e6
        return 0.0

    def peak_memory(self) -> int:
        """The most memory that the group held at once; 0 where it is not counted."""
        place = self._places.get("memory")
        if place is None:
            return 0
        return _number(f"{place.folder}/{'memory.peak' if place.unified else 'memory.max_usage_in_bytes'}")

    def pids(self) -> list[int]:
        """The processes in the group."""
        found: set[int] = set()
        for folder in self.folders:
            found.update(int(line) for line in _read(f"{folder}/cgroup.procs").split())
        return sorted(found)

    def kill(self) -> None:
        """End every process in the group, at full speed. Where processes are limited, nothing can be started in it afterwards."""
        self.lift_cpu_limit()
        if place := self._places.get("pids"):
            with contextlib.suppress(OSError):
                _write(f"{place.folder}/pids.max", "0")
        for place in self._places.values():
            if place.unified:
                with contextlib.suppress(OSError):
                    _write(f"{place.folder}/cgroup.kill", "1")
        kill_all(self.pids)

    def lift_cpu_limit(self) -> None:
        """Let what is in the group run as fast as it can: to end takes processor time too, and a limit would draw it out."""
        if place := self._places.get("cpu"):
            names = ("cpu.max", "cpu.weight") if place.unified else ("cpu.cfs_quota_us", "cpu.shares")
            for name, text in zip(names, ("max" if place.unified else "-1", _URGENT[place.unified]), strict=True):
                with contextlib.suppress(OSError):
                    _write(f"{place.folder}/{name}", text)

    def remove(self) -> bool:
        """Give the group back. False while a process is still in it."""
        gone = True
        for folder in self.folders:
            try:
                os.rmdir(folder)  # noqa: PTH106
            except FileNotFoundError:
                continue
            except OSError:
                gone = False
        return gone

    def _limit(self, memory: int, processes: int, millicpus: int) -> None:
        if place := self._places.get("memory"):
            _limit_memory(place, memory)
        if place := self._places.get("pids"):
            _write(f"{place.folder}/pids.max", str(processes))
        if place := self._places.get("cpu"):
            _limit_cpu(place, millicpus)

    def _count(self, controller: str, unified: str, first: str, field: str) -> int:
        place = self._places.get(controller)
        return _field(f"{place.folder}/{unified if place.unified else first}", field) if place else 0


def _limit_cpu(place: CgroupDir, millicpus: int) -> None:
    """Limit processor time over short periods, so that whoever used up its share does not stand still for long."""
    period = max(_PERIOD_US, _LEAST_QUOTA_US * 1000 // max(1, millicpus))
    quota = max(_LEAST_QUOTA_US, period * millicpus // 1000)
    if place.unified:
        _write(f"{place.folder}/cpu.max", f"{quota} {period}")
        _write(f"{place.folder}/cpu.weight", _MODEST[place.unified])
    else:
        _write(f"{place.folder}/cpu.cfs_period_us", str(period))
        _write(f"{place.folder}/cpu.cfs_quota_us", str(quota))
        _write(f"{place.folder}/cpu.shares", _MODEST[place.unified])


def _limit_memory(place: CgroupDir, memory: int) -> None:
    """Limit memory and swap together, where there is swap to limit: a limit that spills to disk is none."""
    if place.unified:
        _write(f"{place.folder}/memory.max", str(memory))
        optional = {"memory.swap.max": "0", "memory.oom.group": "1"}
    else:
        _write(f"{place.folder}/memory.limit_in_bytes", str(memory))
        optional = {"memory.memsw.limit_in_bytes": str(memory)}
    for name, text in optional.items():
        with contextlib.suppress(FileNotFoundError):
            _write(f"{place.folder}/{name}", text)


def _write(path: str, text: str) -> None:
    # Plain descriptors: a file object would try again when it is closed, and hide the first refusal behind a second.
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
