"""Resolves a host once, checks its addresses, and connects to a checked address (no DNS rebinding)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from libs.common.egress.public_addresses import PublicAddresses
from services.executor.adapters.sandbox.egress.destination import Destination

Resolve = Callable[[str], Awaitable[Sequence[str]]]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class PrivateAddressError(Exception):
    """The host resolves to an address that is not public."""


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


async def _connect_first(addresses: Sequence[str], port: int) -> Streams:
    for address in addresses[:-1]:
        try:
            return await asyncio.open_connection(address, port)
        except OSError:
            continue
    if not addresses:
        raise OSError("the host has no address")
    return await asyncio.open_connection(addresses[-1], port)
