"""What a tree of processes uses, added up process by process, for where no control group does it. Standard library only."""

from __future__ import annotations

import os

from services.executor.adapters.sandbox.launcher.process_tree import descendants

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
# Counted after the name in parentheses, which may itself hold anything.
_FIRST_TIME, _LAST_TIME = 11, 15
_WRITTEN = ("Pss_Anon:", "Pss_Shmem:")


def cpu_seconds(pid: int) -> float:
    """Processor time of a process, its descendants, and all of those that it has waited for."""
    fields = (_read(f"/proc/{one}/stat").rpartition(")")[2].split() for one in (pid, *descendants(pid)))
    return sum(int(field) for each in fields for field in each[_FIRST_TIME:_LAST_TIME]) / _TICKS


def memory_bytes(pid: int, limit: int) -> int:
    """Memory of a process and its descendants. Pages that several share are counted once, but only where it matters: when the
    total is beyond the limit otherwise."""
    tree = (pid, *descendants(pid))
    resident = sum(int(text.split()[1]) for one in tree if (text := _read(f"/proc/{one}/statm"))) * _PAGE
    return resident if resident <= limit else sum(map(_share, tree))


def _share(pid: int) -> int:
    """What a process has for itself, and its part of what several hold: written pages, and memory that was made to be shared."""
    lines = (line.split() for line in _read(f"/proc/{pid}/smaps_rollup").splitlines())
    return sum(int(fields[1]) for fields in lines if fields[0] in _WRITTEN) * 1024


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return ""
