"""What processes use, read from the kernel."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

MEGABYTE = 1024 * 1024


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return the processor time that the processes have used so far: their own to the nanosecond, or to the tick once
    threads of theirs have
    ended, and what children that ended have left them (a connection of the database, a sandbox) to the tick."""
    total, tick = 0.0, os.sysconf("SC_CLK_TCK")
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):
            threads = sum(_thread_seconds(task) for task in Path(f"/proc/{pid}/task").iterdir())
            # After the name, which may hold anything but stands in brackets: the state is the first
            # field, these are the 12th to the 15th.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            own, children = (sum(map(int, fields[place : place + 2])) / tick for place in (11, 13))
            # A thread that ended took its time with it; the process has it still.
            total += max(threads, own) + children
    return total


def _thread_seconds(task: Path) -> float:
    with suppress(FileNotFoundError, ProcessLookupError):
        return int((task / "schedstat").read_text().split()[0]) / 1e9
    return 0.0


class Ticks(NamedTuple):
    """Processor time of the whole machine since it began, in ticks."""

    all: int
    stolen: int
    """What a machine that is a guest asked for, and its host gave to others."""

    def stolen_since(self, before: Ticks) -> float:
        """Return the share of the time since then that others got."""
        return (self.stolen - before.stolen) / max(1, self.all - before.all)


def ticks(told: str | None = None) -> Ticks:
    """Return the machine's processor time so far."""
    line = (told or Path("/proc/stat").read_text()).splitlines()[0]
    # User, nice, system, idle, waiting, interrupts (2), stolen; what guests of this machine used is in the first
    # two already.
    spent = [int(field) for field in line.split()[1:9]]
    return Ticks(sum(spent), spent[7])


def resident_bytes(pids: Iterable[int]) -> int:
    """Return the memory that the processes hold; pages that several share count once for each."""
    page = os.sysconf("SC_PAGE_SIZE")
    total = 0
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page
    return total


def family(pid: int) -> list[int]:
    """Return a process and everything below it."""
    found = [pid]
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += family(int(child))
    return found
