"""Adds up CPU time and memory of a process tree, for machines without cgroups."""

from __future__ import annotations

import os

from services.executor.adapters.sandbox.launcher.process_tree import descendants

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
# Fields of /proc/PID/stat after the command name, which is in parentheses and may hold any character.
_FIRST_TIME, _LAST_TIME = 11, 15
_COUNTED = ("Pss_Anon:", "Pss_Shmem:")


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process, its descendants and its reaped children."""
    fields = (_read(f"/proc/{one}/stat").rpartition(")")[2].split() for one in (pid, *descendants(pid)))
    return sum(int(field) for stat in fields for field in stat[_FIRST_TIME:_LAST_TIME]) / _TICKS


def memory_bytes(pid: int, limit: int) -> int:
    """Return the memory of a process and its descendants. Shared pages are counted once, but only if the cheaper sum of
    resident sizes exceeds the limit."""
    tree = (pid, *descendants(pid))
    resident = sum(int(text.split()[1]) for one in tree if (text := _read(f"/proc/{one}/statm"))) * _PAGE
    return resident if resident <= limit else sum(map(_proportional_bytes, tree))


def anonymous_bytes(pid: int) -> int:
    """Return the resident memory of a process that is neither a file nor shared."""
    fields = _read(f"/proc/{pid}/statm").split()
    return (int(fields[1]) - int(fields[2])) * _PAGE if fields else 0


def _proportional_bytes(pid: int) -> int:
    """Return the proportional set size of anonymous and shared memory."""
    lines = (line.split() for line in _read(f"/proc/{pid}/smaps_rollup").splitlines())
    return sum(int(fields[1]) for fields in lines if fields[0] in _COUNTED) * 1024


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return ""
