"""The HTTP server: uvicorn with mutual TLS, without its own signal handlers."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Collection, Iterator
from typing import Any

import uvicorn

from libs.common.runtime.settings import Address, ProcessSettings
from libs.common.telemetry.log import Log
from services.gateway.transport.in_flight import InFlightRequests
from services.gateway.transport.server.peer_check import CLOSE_SECONDS, peer_checking_protocol
from services.gateway.transport.server.rotating_context import RotatingContext

# Above the idle timeout of the edge's pool (60 s), so that the gateway never closes a connection that the edge may use.
KEEP_ALIVE_SECONDS = 75


class HttpServer:
    """Serves HTTP; drains before it stops."""

    def __init__(
        self, settings: ProcessSettings, app: Any, in_flight: InFlightRequests, peers: Collection[str], log: Log
    ) -> None:
        self._in_flight, self._drain_seconds = in_flight, settings.drain_seconds
        self._drain_delay = settings.drain_delay_seconds
        self._socket = _bind(settings.listen)
        self._server = _Server(_config(settings, app, peer_checking_protocol(settings.trust_domain, peers, log)))
        self._serving: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return int(self._socket.getsockname()[1])

    async def start(self) -> None:
        """Return when the server accepts requests."""
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        up = asyncio.create_task(self._server.up.wait())
        await asyncio.wait({self._serving, up}, return_when=asyncio.FIRST_COMPLETED)
        if not up.done():
            up.cancel()
            await self._serving
        self._in_flight.serving = True

    async def drain(self) -> None:
        """Report unhealthy, serve for the drain delay and until no request is in flight, then close.

        During the delay health answers 503 and responses close their connections, but new requests are still served:
        clients may not have noticed yet. After the time limit the remaining requests are cancelled.
        """
        self._in_flight.begin_drain()
        await asyncio.sleep(self._drain_delay)
        await self._in_flight.wait_idle(self._drain_seconds / 2)
        self._server.should_exit = True
        if self._serving is not None:
            await self._serving
        # Cancelled requests still have to be answered.
        await self._in_flight.wait_idle(CLOSE_SECONDS)


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the process has its own. `up` is set once it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:  # type: ignore[override]
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()


def _config(settings: ProcessSettings, app: Any, protocol: type[asyncio.Protocol]) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, int(settings.drain_seconds / 2)),
        # Otherwise a read that resumes inside one request would pass that request's context on to the next.
        reset_contextvars=True,
        # The client is identified by its certificate alone.
        proxy_headers=False,
        server_header=False,
        date_header=False,
        access_log=False,
        # The application writes its own log lines.
        log_config=None,
        log_level="critical",
    )
    config.load()
    config.ssl = RotatingContext(settings).first
    return config


def _bind(listen: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((listen.host.strip("[]"), listen.port))
    listener.setblocking(False)
    return listener
