"""Resolves the host of a server to addresses that this executor may connect to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from libs.common.egress.public_addresses import PublicAddresses
from services.executor.adapters.upstreams.mcp.transport import ServerLostError

Resolve = Callable[[str], Awaitable[Sequence[str]]]
_MAX_ADDRESSES = 4


async def checked_addresses(host: str, resolve: Resolve, allowed: PublicAddresses, *, plaintext: bool) -> Sequence[str]:
    """Return the addresses. Raises ServerLostError if one is forbidden: without TLS, also a public one."""
    try:
        addresses = await resolve(host)
    except (OSError, UnicodeError):
        addresses = ()
    public = PublicAddresses(())
    usable = all(
        allowed.is_allowed(address) and not (plaintext and public.is_allowed(address)) for address in addresses
    )
    if not addresses or not usable:
        raise ServerLostError("the server has no address that this executor may connect to")
    return addresses[:_MAX_ADDRESSES]
