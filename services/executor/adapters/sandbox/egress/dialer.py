"""Turns a name into a connection, by one look at the name: what was checked is what is connected to."""

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
# Of all, and for those who may ask for the same hosts.
_THREADS, _AT_ONCE = 32, 2


class PrivateAddressError(Exception):
    """The name leads to an address that a confined process may not be led to."""


class SystemResolver:
    """The machine's own resolver, in threads of its own.

    How long an answer takes is decided by whoever owns the name, and a question cannot be taken back. So whoever may ask for the same
    hosts gets a few of the threads and no more, however many names that are: the others' names are answered meanwhile.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="egress-names")
        self._turns: WeakValueDictionary[Hashable, asyncio.Semaphore] = WeakValueDictionary()

    async def __call__(self, host: str, whose: Hashable = ()) -> Sequence[str]:
        """Return every address of the name; raises OSError when it has none. `whose` is who shares threads."""
        turn = self._turns.setdefault(whose, asyncio.Semaphore(_AT_ONCE))
        await turn.acquire()
        asked = asyncio.get_running_loop().run_in_executor(self._threads, _look_up, host)
        # The thread is taken until there is an answer, whether or not anyone still waits for it.
        asked.add_done_callback(partial(_give_back, turn))
        found = await asyncio.shield(asked)
        return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))

    def close(self) -> None:
        """Let the threads end."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class Dialer:
    """Connects to places, where their addresses are outside."""

    def __init__(self, resolve: Resolve, addresses: PublicAddresses, *, seconds: float) -> None:
        self._resolve = resolve
        self._addresses = addresses
        self._seconds = seconds

    async def connect(self, destination: Destination) -> Streams:
        """Resolve once, check every address, and connect to one of those that were checked. Raises InsideError or OSError.

        A name with even one address inside is refused as a whole: an honest one has none, and which of them a later
        attempt would use is for whoever answers the question to choose.
        """
        async with asyncio.timeout(self._seconds):
            addresses = await self._resolve(destination.host)
            if not all(self._addresses.is_allowed(address) for address in addresses):
                raise PrivateAddressError
            return await _first_that_answers(addresses, destination.port)


def _look_up(host: str) -> list[tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str | int, ...]]]:
    return socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)  # type: ignore[return-value]


def _give_back(turn: asyncio.Semaphore, asked: asyncio.Future[Any]) -> None:
    turn.release()
    if not asked.cancelled():
        # Heard by whoever waits for it; if nobody does any more, it is no news.
        asked.exception()


async def _first_that_answers(addresses: Sequence[str], port: int) -> Streams:
    for address in addresses[:-1]:
        try:
            return await asyncio.open_connection(address, port)
        except OSError:
            continue
    if not addresses:
        raise OSError("the name has no address")
    return await asyncio.open_connection(addresses[-1], port)
