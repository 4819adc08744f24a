"""Ending many processes at once. Standard library only: the launcher loads this.

A namespace ends with its first process, but that has to get its turn on the processor first, and in a crowd that it shares a limit
with it may wait for long. So everyone is told at the same time. A number alone may come to mean another process at any moment: each is
held by a descriptor, and told only if it still belongs to the crowd after it was held.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress

_ROUNDS = 3


def kill_all(members: Callable[[], list[int]]) -> None:
    """Send SIGKILL to every member of a crowd, and once more to those who joined it meanwhile."""
    told: set[int] = set()
    for _ in range(_ROUNDS):
        held = {}
        for pid in members():
            if pid not in told:
                with suppress(OSError):
                    held[pid] = os.pidfd_open(pid)
        if not held:
            return
        still = set(members())
        for pid, descriptor in held.items():
            with suppress(ProcessLookupError, PermissionError):
                if pid in still:
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            os.close(descriptor)
        told |= held.keys()


def descendants(pid: int) -> list[int]:
    """Return the processes that descend from one, without itself."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        born = list(children(waiting.pop()))
        found += born
        waiting += born
    return found


def children(pid: int) -> Iterator[int]:
    """Yield the children of a process, whichever of its threads started them."""
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            with open(f"/proc/{pid}/task/{thread}/children") as file:  # noqa: PTH123
                yield from map(int, file.read().split())
