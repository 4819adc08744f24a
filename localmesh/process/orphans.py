"""Waits for the children of a killed runner to end before the next runner starts."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path

from localmesh.state.files import read_json, write_json

POLL_SECONDS = 0.02


def remember_children(path: Path, pids: Mapping[str, int]) -> None:
    """Stores the pid and start time of each child; pids alone are reused."""
    write_json(path, {name: [pid, start_ticks(pid)] for name, pid in pids.items()})


async def wait_for_orphans(path: Path, seconds: float) -> list[str]:
    """Waits until all orphans have ended and returns their names."""
    recorded = read_json(path)
    alive = {name: pid for name, (pid, born) in recorded.items() if born is not None and start_ticks(pid) == born}
    if not await wait_until_gone(alive.values(), seconds):
        for pid in alive.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await wait_until_gone(alive.values(), seconds)
    return list(alive)


async def wait_until_gone(pids: Iterable[int], seconds: float) -> bool:
    """True as soon as none of the processes runs; False if one still does when the time is over."""
    waiting = list(pids)
    end = asyncio.get_running_loop().time() + seconds
    while any(is_running(pid) for pid in waiting):
        if asyncio.get_running_loop().time() > end:
            return False
        await asyncio.sleep(POLL_SECONDS)
    return True


def is_running(pid: int) -> bool:
    """True unless the process has ended; a zombie has ended."""
    fields = _stat_fields(pid)
    return bool(fields) and fields[0] not in ("Z", "X")


def start_ticks(pid: int) -> int | None:
    """Returns the process's start time in clock ticks since boot; None if there is no such process."""
    fields = _stat_fields(pid)
    return int(fields[19]) if fields else None


def age_seconds(pid: int) -> float:
    """Returns how long the process has existed."""
    born = start_ticks(pid)
    return 0.0 if born is None else _seconds_since_boot() - born / os.sysconf("SC_CLK_TCK")


def _seconds_since_boot() -> float:
    return float(Path("/proc/uptime").read_text().split()[0])


def _stat_fields(pid: int) -> list[str]:
    # The second field is the program's name in parentheses and may itself hold any character; what follows is regular.
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
