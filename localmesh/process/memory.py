"""Measures the memory of processes and their children."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

_PAGE = os.sysconf("SC_PAGE_SIZE")
Children = Mapping[int, list[int]]


@dataclass(frozen=True)
class Memory:
    """An amount and its kind: `pss` counts a shared page once in all, `rss` once for each process that maps it."""

    bytes: int
    kind: Literal["rss", "pss"]


def all_children() -> Children:
    """Returns the children of every process on this machine."""
    children: dict[int, list[int]] = defaultdict(list)
    for pid, parent in _parents():
        children[parent].append(pid)
    return children


def resident(pids: Iterable[int]) -> Memory:
    """Returns the resident memory of some processes."""
    return Memory(sum(_rss(pid) for pid in pids), "rss")


def proportional(pids: Iterable[int]) -> Memory:
    """Returns the memory of processes that share much; their resident memory where the kernel denies more."""
    members = list(pids)
    amounts = [_pss(pid) for pid in members]
    known = [amount for amount in amounts if amount is not None]
    return Memory(sum(known), "pss") if len(known) == len(amounts) else resident(members)


def family(pid: int, children: Children) -> list[int]:
    """Returns the process and its descendants."""
    found = [pid]
    for member in found:
        found.extend(children.get(member, ()))
    return found


def _parents() -> Iterable[tuple[int, int]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                yield int(entry.name), int((entry / "stat").read_text().rpartition(")")[2].split()[1])


def _rss(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    return 0


def _pss(pid: int) -> int | None:
    """Return the proportional memory of a process: 0 for one that has just ended, None for one that may not be read."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        return 0
    except OSError:
        return None
    return 0
