"""Finds, terminates and kills process trees.

A PID namespace ends with its first process, but under a CPU limit that process may wait long to be scheduled, so all
processes are signaled. A PID may be reused at any moment: each process is held by a pidfd and signaled only if it is
still a member afterwards.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress

_ROUNDS = 3


def kill_all(members: Callable[[], list[int]]) -> None:
    """Send SIGKILL to every member, and again to those that joined in the meantime."""
    signaled: set[int] = set()
    for _ in range(_ROUNDS):
        reached = _signal(members, signal.SIGKILL, signaled)
        if not reached:
            return
        signaled |= reached


def terminate_all(members: Callable[[], list[int]]) -> None:
    """Send SIGTERM to every member."""
    _signal(members, signal.SIGTERM, set())


def _signal(members: Callable[[], list[int]], number: int, without: set[int]) -> set[int]:
    """Send a signal to the members, without some, and return which."""
    pidfds = {}
    for pid in members():
        if pid not in without:
            with suppress(OSError):
                pidfds[pid] = os.pidfd_open(pid)
    current = set(members()) if pidfds else set()
    for pid, descriptor in pidfds.items():
        with suppress(ProcessLookupError, PermissionError):
            if pid in current:
                signal.pidfd_send_signal(descriptor, number)
        os.close(descriptor)
    return set(pidfds)


def descendants(pid: int) -> list[int]:
    """Return all descendants of a process, without the process itself."""
    pids: list[int] = []
    pending = [pid]
    while pending:
        direct = list(children(pending.pop()))
        pids += direct
        pending += direct
    return pids


def children(pid: int) -> Iterator[int]:
    """Yield the children of a process, of all its threads."""
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            with open(f"/proc/{pid}/task/{thread}/children") as file:  # noqa: PTH123
                yield from map(int, file.read().split())
