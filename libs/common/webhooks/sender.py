"""Sends signed webhooks.

A host is resolved once, all its addresses are checked, and the request goes to a checked address. Redirects are not
followed, the body of the answer is not read, connections are not reused, and proxies of the environment are ignored.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from libs.common.egress.resolver import SystemResolver
from libs.common.runtime.clock import Clock, SystemClock
from libs.common.webhooks.destination import Destination, ForbiddenUrlError, WebhookDestinations
from libs.common.webhooks.signature import signed_headers

if TYPE_CHECKING:
    import httpx

Resolve = Callable[[str, Hashable], Awaitable[Sequence[str]]]

SEND_SECONDS = 10.0
_CONNECTIONS = 32
_MAX_ADDRESSES = 4
_GONE = 410


class WebhookMessage(Struct, frozen=True):
    """A message to one receiver. Repeated deliveries have the same id."""

    message_id: str
    url: str
    key: bytes
    """Signs the message."""
    body: bytes
    """JSON."""
    group: str = ""
    """Whose message it is, such as a tenant. Lookups of one group share few threads."""

    def __repr__(self) -> str:
        return f"WebhookMessage({self.message_id!r})"


class DeliveryResult(Struct, frozen=True):
    """What became of one try."""

    delivered: bool
    detail: str
    """`http_` and the status, or `timeout`, `unreachable`, `unresolved`, or the rule that forbids the URL."""
    retry: bool = True
    """Whether a later try makes sense."""


class WebhookSender:
    """Sends messages, a bounded number at a time."""

    def __init__(
        self,
        destinations: WebhookDestinations,
        *,
        resolve: Resolve | None = None,
        trust: ssl.SSLContext | None = None,
        clock: Clock | None = None,
        seconds: float = SEND_SECONDS,
    ) -> None:
        """`trust` is the TLS context; None for the trusted certificates of the machine."""
        self._destinations, self._trust, self._seconds = destinations, trust, seconds
        self._clock = clock or SystemClock()
        self._resolver = SystemResolver()
        self._resolve: Resolve = resolve or self._resolver.resolve
        self._transport: httpx.AsyncHTTPTransport | None = None

    async def send(self, message: WebhookMessage) -> DeliveryResult:
        """Send a message once, and return what became of it."""
        try:
            async with asyncio.timeout(self._seconds):
                destination = self._destinations.parse(message.url)
                addresses = await self._addresses(destination, message.group)
                return await self._post(message, destination, addresses)
        except ForbiddenUrlError as error:
            return DeliveryResult(delivered=False, detail=error.rule)
        except TimeoutError:
            return DeliveryResult(delivered=False, detail="timeout")
        except _UnresolvedError:
            return DeliveryResult(delivered=False, detail="unresolved")
        except Exception:
            # The client raises more than it documents. The text may repeat the URL, so it is not kept.
            return DeliveryResult(delivered=False, detail="unreachable")

    async def close(self) -> None:
        """Close the connections and stop the threads."""
        self._resolver.close()
        if self._transport is not None:
            await self._transport.aclose()

    async def _addresses(self, destination: Destination, group: str) -> Sequence[str]:
        try:
            addresses = await self._resolve(destination.host, group)
        except (OSError, UnicodeError):
            raise _UnresolvedError from None
        if not addresses:
            raise _UnresolvedError
        self._destinations.check_addresses(destination, addresses)
        return addresses[:_MAX_ADDRESSES]

    async def _post(
        self, message: WebhookMessage, destination: Destination, addresses: Sequence[str]
    ) -> DeliveryResult:
        import httpx

        for address in addresses[:-1]:
            try:
                return await self._post_to(message, destination, address)
            except httpx.ConnectError:
                continue
        return await self._post_to(message, destination, addresses[-1])

    async def _post_to(self, message: WebhookMessage, destination: Destination, address: str) -> DeliveryResult:
        import httpx

        request = httpx.Request(
            "POST",
            destination.url_at(address),
            content=message.body,
            headers={
                "host": destination.authority,
                "content-type": "application/json",
                "user-agent": "toolmesh",
                "connection": "close",
                **signed_headers(message.key, message.message_id, self._clock.now(), message.body),
            },
            # The certificate must be valid for the host, not for the address.
            extensions={"sni_hostname": destination.host, "timeout": httpx.Timeout(self._seconds).as_dict()},
        )
        response = await self._connections().handle_async_request(request)
        await response.aclose()
        status = response.status_code
        return DeliveryResult(delivered=200 <= status < 300, detail=f"http_{status}", retry=status != _GONE)

    def _connections(self) -> httpx.AsyncHTTPTransport:
        if self._transport is None:
            # Imported lazily: it takes over a megabyte. The transport alone has no cookies, redirects or proxies.
            import httpx

            # No reuse: connections are pooled by address, and two hosts may share one.
            limits = httpx.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=0)
            trust = self._trust or ssl.create_default_context()
            self._transport = httpx.AsyncHTTPTransport(verify=trust, trust_env=False, limits=limits)
        return self._transport


class _UnresolvedError(Exception):
    """The host has no address."""
