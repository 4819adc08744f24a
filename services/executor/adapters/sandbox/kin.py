"""The processes that descend from one process, found and waited for without having started them."""

from __future__ import annotations

import asyncio
import os
import select
from contextlib import suppress
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
# Counted after the name in parentheses, which may itself hold anything.
_PARENT, _USER_TIME, _LAST_TIME = 1, 11, 15


def descendants(pid: int) -> list[int]:
    """Return every process that descends from one, itself not included. What is started meanwhile may be missing."""
    children: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and (fields := _fields(int(entry.name))):
            children.setdefault(int(fields[_PARENT]), []).append(int(entry.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        born = children.get(waiting.pop(), [])
        found += born
        waiting += born
    return found


def processor_seconds(pids: list[int]) -> float:
    """Return the processor time that processes and their children who have ended took."""
    spent = [_fields(pid)[_USER_TIME:_LAST_TIME] for pid in pids]
    return sum(int(each) for fields in spent for each in fields) / _TICKS


async def gone(pids: list[int], seconds: float) -> bool:
    """Wait until processes have ended, whoever their parent is; false if some have not in time."""
    watched = []
    for pid in pids:
        with suppress(OSError):
            watched.append(os.pidfd_open(pid))
    try:
        return await asyncio.to_thread(_all_readable, watched, seconds) if watched else True
    finally:
        for descriptor in watched:
            os.close(descriptor)


def _all_readable(descriptors: list[int], seconds: float) -> bool:
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    left = len(descriptors)
    while left:
        ready = poll.poll(seconds * 1000)
        if not ready:
            return False
        for descriptor, _ in ready:
            poll.unregister(descriptor)
            left -= 1
    return True


def _fields(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []
