"""Resource limits (rlimits) that the kernel enforces per process."""

from __future__ import annotations

import math
import resource
from collections.abc import Iterator
from typing import Any

_STACK = 8 << 20
_LOCKED = 64 << 10
_OPEN_FILES = 1024

BWRAP_PROCESSES = 2
"""Bubblewrap and its init process, which count against the process limit of a sandbox."""

Limit = tuple[int, int, int]
"""Resource, soft limit and hard limit."""


def process_limits(plan: dict[str, Any], *, memory: bool, processes: bool) -> Iterator[Limit]:
    """Yield the limits of every process of a plan. `memory` adds RLIMIT_AS and `processes` adds RLIMIT_NPROC, for when
    no cgroup limits them. RLIMIT_NPROC needs a user id that nothing else uses."""
    seconds = max(1, math.ceil(plan["cpu_seconds"]))
    # SIGXCPU at the limit, and SIGKILL a second later for a process that ignores it.
    yield resource.RLIMIT_CPU, seconds, seconds + 1
    yield resource.RLIMIT_FSIZE, plan["file_bytes"], plan["file_bytes"]
    yield resource.RLIMIT_CORE, 0, 0
    yield resource.RLIMIT_STACK, _STACK, _STACK
    yield resource.RLIMIT_MEMLOCK, _LOCKED, _LOCKED
    yield resource.RLIMIT_NOFILE, _OPEN_FILES, _OPEN_FILES
    yield resource.RLIMIT_MSGQUEUE, 0, 0
    if memory:
        yield resource.RLIMIT_AS, plan["memory_bytes"], plan["memory_bytes"]
    if processes:
        allowed = plan["processes"] + BWRAP_PROCESSES
        yield resource.RLIMIT_NPROC, allowed, allowed


def apply_limits(limits: Iterator[Limit]) -> None:
    """Apply limits to this process; never raises an existing limit."""
    for which, soft, hard in limits:
        ceiling = resource.getrlimit(which)[1]
        if ceiling != resource.RLIM_INFINITY:
            soft, hard = min(soft, ceiling), min(hard, ceiling)
        resource.setrlimit(which, (soft, hard))


def limit_processes(pid: int, processes: int) -> None:
    """Set RLIMIT_NPROC of another process and its future children. It must be in its own user namespace, where no other
    process counts. Raises OSError if that is not permitted."""
    # Bubblewrap itself is outside the namespace.
    allowed = processes + BWRAP_PROCESSES - 1
    resource.prlimit(pid, resource.RLIMIT_NPROC, (allowed, allowed))
