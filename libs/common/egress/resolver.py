"""Resolves host names in threads, without letting a slow domain take them all."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

# In total, and per group of callers.
_THREADS, _THREADS_PER_GROUP = 32, 2


class SystemResolver:
    """The system resolver in its own thread pool.

    The owner of a name decides how long a lookup takes, and a lookup cannot be canceled. So each group of callers
    gets few of the threads, and a slow domain does not block the others.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="egress-names")
        self._slots: WeakValueDictionary[Hashable, asyncio.Semaphore] = WeakValueDictionary()

    async def resolve(self, host: str, group: Hashable = ()) -> Sequence[str]:
        """Return all addresses of a host; raises OSError if it has none. Lookups of one group share threads."""
        slot = self._slots.setdefault(group, asyncio.Semaphore(_THREADS_PER_GROUP))
        await slot.acquire()
        lookup = asyncio.get_running_loop().run_in_executor(self._threads, _lookup, host)
        # The thread is busy until the lookup ends, even if the caller was canceled.
        lookup.add_done_callback(partial(_release, slot))
        entries = await asyncio.shield(lookup)
        return tuple(dict.fromkeys(str(entry[4][0]) for entry in entries))

    def close(self) -> None:
        """Stop the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _lookup(host: str) -> list[tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str | int, ...]]]:
    return socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)  # type: ignore[return-value]


def _release(slot: asyncio.Semaphore, lookup: asyncio.Future[Any]) -> None:
    slot.release()
    if not lookup.cancelled():
        # Marks the exception as retrieved; a waiting caller gets it through the shield.
        lookup.exception()
