"""Connections to HTTP services: pooled, and opened to checked addresses only.

A host is resolved when a connection is opened, all its addresses are checked, and the connection goes to one of them:
a name that changes its address gains nothing. Plain HTTP is for the deployment's own networks. Proxies, cookies and
credentials of the environment are not used.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import httpcore

from libs.common.egress.public_addresses import Network, PublicAddresses
from libs.common.egress.resolver import SystemResolver

Resolve = Callable[[str], Awaitable[Sequence[str]]]

_CONNECTIONS, _IDLE_CONNECTIONS = 256, 64
# As long as most servers keep idle connections open.
_KEEPALIVE_SECONDS = 4.0
_MAX_ADDRESSES = 4


class ForbiddenAddressError(Exception):
    """The host has an address that the deployment does not allow. `rule` names the rule."""

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule


class UnresolvedHostError(Exception):
    """The host has no address."""


class HttpConnections:
    """The connection pools of one executor."""

    def __init__(
        self,
        internal: Iterable[Network] = (),
        *,
        resolve: Resolve | None = None,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        """`trust` is the TLS context; None for the trusted certificates of the machine."""
        self._resolver = SystemResolver()
        lookup = resolve or self._resolve
        allowed, public = PublicAddresses(tuple(internal)), PublicAddresses()

        def check_secure(address: str) -> str:
            return "" if allowed.is_allowed(address) else "address_not_public"

        def check_plain(address: str) -> str:
            return "not_https" if public.is_allowed(address) else check_secure(address)

        self._pools: Mapping[str, httpcore.AsyncConnectionPool] = {
            "https": _pool(CheckedBackend(lookup, check_secure), trust or ssl.create_default_context()),
            "http": _pool(CheckedBackend(lookup, check_plain), None),
        }

    async def send(self, scheme: str, request: httpcore.Request) -> httpcore.Response:
        """Send a request and return its answer, whose content is still to be read. The caller closes it.

        Raises the client's errors, ForbiddenAddressError and UnresolvedHostError.
        """
        return await self._pools[scheme].handle_async_request(request)

    async def close(self) -> None:
        """Close every connection."""
        self._resolver.close()
        for pool in self._pools.values():
            await pool.aclose()

    async def _resolve(self, host: str) -> Sequence[str]:
        return await self._resolver.resolve(host, group=host)


class CheckedBackend(httpcore.AsyncNetworkBackend):
    """Opens connections to checked addresses."""

    def __init__(self, resolve: Resolve, check: Callable[[str], str]) -> None:
        """`check` returns the rule that forbids an address; empty if none does."""
        self._resolve, self._check = resolve, check
        self._backend = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Resolve, check and connect. A host with even one forbidden address is refused."""
        try:
            addresses = await self._resolve(host)
        except (OSError, UnicodeError):
            raise UnresolvedHostError from None
        if not addresses:
            raise UnresolvedHostError
        for rule in map(self._check, addresses):
            if rule:
                raise ForbiddenAddressError(rule)
        *others, last = addresses[:_MAX_ADDRESSES]
        for address in others:
            try:
                return await self._backend.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
        return await self._backend.connect_tcp(last, port, timeout, local_address, socket_options)

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Refuse: no tool names a socket."""
        raise ForbiddenAddressError("unix_socket")

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await self._backend.sleep(seconds)


def _pool(backend: CheckedBackend, trust: ssl.SSLContext | None) -> httpcore.AsyncConnectionPool:
    return httpcore.AsyncConnectionPool(
        ssl_context=trust,
        max_connections=_CONNECTIONS,
        max_keepalive_connections=_IDLE_CONNECTIONS,
        keepalive_expiry=_KEEPALIVE_SECONDS,
        network_backend=backend,
    )
