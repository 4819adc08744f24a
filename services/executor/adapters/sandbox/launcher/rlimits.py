"""The limits that the kernel keeps for each process by itself. Standard library only: the launcher loads this."""

from __future__ import annotations

import math
import resource
from collections.abc import Iterator
from typing import Any

_STACK = 8 << 20
_LOCKED = 64 << 10
_OPEN_FILES = 1024

BWRAP_PROCESSES = 2
"""Bubblewrap itself and the first process inside count among the processes of a sandbox."""

Limit = tuple[int, int, int]
"""What is limited, the soft limit and the hard one."""


def process_limits(plan: dict[str, Any], *, memory: bool, processes: bool) -> Iterator[Limit]:
    """Yield the limits that every process of a plan gets. With `memory`, its address space is limited too, and with `processes` how
    many its user may have, for where no control group limits them. The user must be nobody else's."""
    seconds = max(1, math.ceil(plan["cpu_seconds"]))
    # SIGXCPU at the limit, and SIGKILL a second later for whoever would rather not hear it.
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
    """Bind this process to limits; never to more than it is bound to already."""
    for which, soft, hard in limits:
        ceiling = resource.getrlimit(which)[1]
        if ceiling != resource.RLIM_INFINITY:
            soft, hard = min(soft, ceiling), min(hard, ceiling)
        resource.setrlimit(which, (soft, hard))


def limit_processes(pid: int, processes: int) -> None:
    """Bind another process, and all that it will start, to a number of processes and threads. It must be in a user namespace of its
    own, where nobody else's count. Raises OSError when that is not allowed."""
    # Bubblewrap itself is outside of the namespace.
    allowed = processes + BWRAP_PROCESSES - 1
    resource.prlimit(pid, resource.RLIMIT_NPROC, (allowed, allowed))
