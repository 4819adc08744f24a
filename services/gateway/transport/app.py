"""Starts the operator port, the HTTP server and the peers in order, and stops them in reverse."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from libs.common.runtime.ops import OpsServer
from libs.common.runtime.settings import ProcessSettings
from services.gateway.transport.in_flight import InFlightRequests
from services.gateway.transport.server.http_server import HttpServer
from services.gateway.transport.telemetry import Telemetry


class Background(Protocol):
    """Work beside the requests. It waits for its peers by itself."""

    async def start(self) -> None:
        """Start, without waiting."""
        ...

    async def stop(self) -> None:
        """Stop."""
        ...


class GatewayApplication:
    """The gateway process. It is ready from the moment it listens until it begins to drain."""

    def __init__(
        self,
        settings: ProcessSettings,
        server: HttpServer,
        in_flight: InFlightRequests,
        telemetry: Telemetry,
        background: Sequence[Background],
        release: Callable[[], Awaitable[None]],
    ) -> None:
        self._background = background
        self.server, self.in_flight, self.telemetry = server, in_flight, telemetry
        self.ops = OpsServer(settings.ops_listen, lambda: in_flight.serving)
        self._release = release

    async def start(self) -> None:
        """Return when the process accepts requests."""
        self.ops.start()
        for work in self._background:
            await work.start()
        await self.server.start()

    async def stop(self) -> None:
        """Drain, then release everything."""
        await self.server.drain()
        self.telemetry.flush()
        for work in self._background:
            await work.stop()
        await self._release()
        self.ops.stop()
