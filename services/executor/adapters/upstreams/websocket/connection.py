"""Opens connections to WebSocket services: to checked addresses, without proxies, redirects and compression.

The client library is imported with the first connection.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from libs.common.egress.public_addresses import PublicAddresses
from services.executor.adapters.upstreams.checked_addresses import Resolve, checked_addresses
from services.executor.adapters.upstreams.mcp.transport import ServerLostError

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection, connect

MAX_MESSAGE_BYTES = 4 << 20
_OPEN_SECONDS, _CLOSE_SECONDS = 10.0, 1.0
_PORTS = {"ws": 80, "wss": 443}
# Whole messages that wait to be read; the service waits beyond them.
_MAX_WAITING = 4
# The library writes headers, and so credentials, to its log.
_SILENT = logging.Logger("websockets", logging.CRITICAL + 1)


class WebSocketConnector:
    """Opens connections to one service."""

    def __init__(
        self,
        url: str,
        subprotocols: Sequence[str],
        resolve: Resolve,
        allowed: PublicAddresses,
        max_bytes: int,
        *,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        """`max_bytes` bounds a message. `trust` is the TLS context; None for the certificates of the machine."""
        parts = urlsplit(url)
        self.host, self.port = (parts.hostname or "").lower(), parts.port or _PORTS[parts.scheme]
        self._url, self._secure, self._subprotocols = url, parts.scheme == "wss", subprotocols
        self._resolve, self._allowed, self._max_bytes, self._trust = resolve, allowed, max_bytes, trust

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return f"{'wss' if self._secure else 'ws'}://{self.host}:{self.port}"

    async def open(self, headers: Mapping[str, str]) -> ClientConnection:
        """Return an open connection. Raises ServerLostError if none can be made, and InvalidStatus of the library."""
        addresses = await checked_addresses(self.host, self._resolve, self._allowed, plaintext=not self._secure)
        *others, last = addresses
        for address in others:
            try:
                return await self._open_to(address, headers)
            except OSError:
                continue
        try:
            return await self._open_to(last, headers)
        except TimeoutError:
            raise ServerLostError("the server does not answer") from None
        except OSError:
            raise ServerLostError("the server cannot be reached, or its certificate is not trusted") from None

    async def _open_to(self, address: str, headers: Mapping[str, str]) -> ClientConnection:
        from websockets.exceptions import InvalidHandshake, InvalidMessage, InvalidStatus
        from websockets.typing import Subprotocol

        options: dict[str, Any] = {}
        if self._secure:
            self._trust = self._trust or ssl.create_default_context()
            options = {"ssl": self._trust, "server_hostname": self.host}
        opening = _connect_once()(
            self._url,
            subprotocols=[Subprotocol(name) for name in self._subprotocols] or None,
            # Compressed messages could expand beyond the limit.
            compression=None,
            additional_headers=dict(headers),
            user_agent_header="toolmesh",
            proxy=None,
            open_timeout=_OPEN_SECONDS,
            close_timeout=_CLOSE_SECONDS,
            max_size=self._max_bytes,
            max_queue=_MAX_WAITING,
            logger=_SILENT,
            host=address,
            port=self.port,
            **options,
        )
        try:
            return await opening
        except InvalidStatus:
            raise
        except (InvalidHandshake, InvalidMessage):
            raise ServerLostError("the server does not speak WebSocket") from None


def _connect_once() -> type[connect]:
    """Return the library's `connect`, which follows no redirect: its headers are for one server."""
    from websockets.asyncio.client import connect

    class ConnectOnce(connect):
        def process_redirect(self, exc: Exception) -> Exception | str:
            return exc

    return ConnectOnce
