"""The gateway put together: operator's port, server and peers, started in order and stopped in reverse."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from libs.common.runtime.ops import OpsServer
from libs.common.runtime.settings import ProcessSettings
from services.gateway.transport.load import Load
from services.gateway.transport.server import HttpServer
from services.gateway.transport.telemetry import Telemetry


class GatewayApplication:
    """Ready from the moment the listener answers until the process begins to end."""

    def __init__(
        self,
        settings: ProcessSettings,
        server: HttpServer,
        load: Load,
        telemetry: Telemetry,
        release: Callable[[], Awaitable[None]],
    ) -> None:
        self.server, self.load, self.telemetry = server, load, telemetry
        self.ops = OpsServer(settings.ops_listen, lambda: load.serving)
        self._release = release

    async def start(self) -> None:
        """Return when the process takes requests."""
        self.ops.start()
        await self.server.start()

    async def stop(self) -> None:
        """Let what was accepted finish, then release everything."""
        await self.server.drain()
        self.telemetry.tell()
        await self._release()
        self.ops.stop()
