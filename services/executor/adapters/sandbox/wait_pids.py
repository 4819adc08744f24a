"""Waiting for processes that somebody else started."""

from __future__ import annotations

import asyncio
import os
import select
from contextlib import suppress


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
