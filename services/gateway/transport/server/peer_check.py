"""Closes connections whose client certificate does not name an allowed peer, before any byte of a request is read."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from libs.common.auth.peers import peer_name
from libs.common.telemetry.log import Log
from services.gateway.transport.disconnect import DisconnectWatcher
from services.gateway.transport.server.write_coalescing import CoalescingTransport

CLOSE_SECONDS = 0.5


def peer_checking_protocol(trust_domain: str, allowed: Collection[str], log: Log) -> type[asyncio.Protocol]:
    """Return an HTTP protocol that closes every connection whose peer is not allowed."""

    class MeshPeerProtocol(HttpToolsProtocol):
        def connection_made(self, transport: Any) -> None:
            name = peer_name_of(trust_domain, transport.get_extra_info("peercert"))
            self._refused = name not in allowed
            super().connection_made(CoalescingTransport(transport, self.loop))
            if self._refused:
                log.warning("peer refused", peer=name, client=str(self.client))
                transport.abort()
                return
            self._disconnect = DisconnectWatcher()
            # Each request receives a copy of this as its scope's state.
            self.app_state = {**self.app_state, "peer": name, "disconnect": self._disconnect}

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            if not self._refused:
                self._disconnect.notify()

        def data_received(self, data: bytes) -> None:
            # Data that arrived with the handshake may still be delivered.
            if not self._refused:
                super().data_received(data)

        def shutdown(self) -> None:
            super().shutdown()
            if self.transport.is_closing():
                # A peer that does not close its side would delay the end of the process.
                self.loop.call_later(CLOSE_SECONDS, self.transport.abort)

    return MeshPeerProtocol


def peer_name_of(trust_domain: str, certificate: dict[str, Any] | None) -> str:
    """Return the mesh name in a certificate, in the form of the ssl module; empty when there is none."""
    alternatives = (certificate or {}).get("subjectAltName", ())
    return peer_name(trust_domain, [value for kind, value in alternatives if kind == "URI"])
