"""Resolves a host once, checks its addresses, and connects to a checked address (no DNS rebinding)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from services.executor.adapters.sandbox.egress.destination import Destination
from services.executor.adapters.sandbox.egress.public_addresses import PublicAddresses

Resolve = Callable[[str], Awaitable[Sequence[str]]]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
# In total, and per group of listeners with the same hosts.
_THREADS, _THREADS_PER_GROUP = 32, 2


class PrivateAddressError(Exception):
    """The host resolves to an address that is not public."""


class SystemResolver:
    """The system resolver in its own thread pool.

    The owner of a name decides how long a lookup takes, and a lookup cannot be canceled. So each group of listeners
    with the same hosts gets few of the threads, and a slow domain does not block the others.
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


class Dialer:
    """Connects to destinations with public addresses."""

    def __init__(self, resolve: Resolve, addresses: PublicAddresses, *, seconds: float) -> None:
        self._resolve = resolve
        self._addresses = addresses
        self._seconds = seconds

    async def connect(self, destination: Destination) -> Streams:
        """Resolve once, check every address, and connect to a checked one. Raises PrivateAddressError or OSError.

        A host with even one non-public address is refused: legitimate hosts have none, and the owner of the name
        decides the order of the addresses.
        """
        async with asyncio.timeout(self._seconds):
            addresses = await self._resolve(destination.host)
            if not all(self._addresses.is_allowed(address) for address in addresses):
                raise PrivateAddressError
            return await _connect_first(addresses, destination.port)


def _lookup(host: str) -> list[tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str | int, ...]]]:
    return socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)  # type: ignore[return-value]


def _release(slot: asyncio.Semaphore, lookup: asyncio.Future[Any]) -> None:
    slot.release()
    if not lookup.cancelled():
        # Marks the exception as retrieved; a waiting caller gets it through the shield.
        lookup.exception()


async def _connect_first(addresses: Sequence[str], port: int) -> Streams:
    for address in addresses[:-1]:
        try:
            return await asyncio.open_connection(address, port)
        except OSError:
            continue
    if not addresses:
        raise OSError("the host has no address")
    return await asyncio.open_connection(addresses[-1], port)
