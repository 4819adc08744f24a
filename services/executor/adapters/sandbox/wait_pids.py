"""Waits for processes that are not children of this one."""

from __future__ import annotations

import asyncio
import os
import select
from contextlib import suppress


async def wait_pids(pids: list[int], seconds: float) -> bool:
    """Wait until all processes have ended; return False if some are still running after the timeout."""
    pidfds = []
    for pid in pids:
        with suppress(OSError):
            pidfds.append(os.pidfd_open(pid))
    try:
        return await asyncio.to_thread(_all_readable, pidfds, seconds) if pidfds else True
    finally:
        for descriptor in pidfds:
            os.close(descriptor)


def _all_readable(descriptors: list[int], seconds: float) -> bool:
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    running = len(descriptors)
    while running:
        ready = poll.poll(seconds * 1000)
        if not ready:
            return False
        for descriptor, _ in ready:
            poll.unregister(descriptor)
            running -= 1
    return True
