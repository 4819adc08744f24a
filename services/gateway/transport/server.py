"""The HTTP server: uvicorn behind mutual TLS, under the process's own signals."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Collection, Iterator
from typing import Any

import uvicorn

from libs.common.runtime.settings import Address, ProcessSettings
from libs.common.telemetry.log import Log
from services.gateway.transport.load import Load
from services.gateway.transport.peercheck import GOODBYE_SECONDS, protocol_for

# Above the idle timeout of the edge's pool (60 s), so that it is never the gateway that closes a connection in use.
KEEP_ALIVE_SECONDS = 75


class HttpServer:
    """Serves until told to stop; then says so, lets what was accepted finish, and ends."""

    def __init__(self, settings: ProcessSettings, app: Any, load: Load, peers: Collection[str], log: Log) -> None:
        self._load, self._drain_seconds = load, settings.drain_seconds
        self._drain_delay = settings.drain_delay_seconds
        self._socket = _bound(settings.listen)
        self._server = _Server(_config(settings, app, protocol_for(settings.trust_domain, peers, log)))
        self._life: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The port that is really listened on."""
        return int(self._socket.getsockname()[1])

    async def start(self) -> None:
        """Return when requests are answered."""
        self._life = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        up = asyncio.create_task(self._server.up.wait())
        await asyncio.wait({self._life, up}, return_when=asyncio.FIRST_COMPLETED)
        if not up.done():
            up.cancel()
            await self._life
        self._load.serving = True

    async def drain(self) -> None:
        """Announce the end, serve on for the delay and until nothing is under way, then close; after the limit end whatever is left.

        While the announcement lasts, health says 503, answers close their connections, and whoever has not heard of it is still
        served. The delay is for them: that nothing is under way at this moment does not say that nothing is on its way.
        """
        self._load.serving = False
        await asyncio.sleep(self._drain_delay)
        await self._load.drained(self._drain_seconds / 2)
        self._server.should_exit = True
        if self._life is not None:
            await self._life
        # What was ended still has to be told so.
        await self._load.drained(GOODBYE_SECONDS)


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the process has its own. Tells when it is up."""

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
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=str(settings.tls_key),
        ssl_ca_certs=str(settings.tls_ca),
        ssl_cert_reqs=ssl.CERT_REQUIRED,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, int(settings.drain_seconds / 2)),
        # A read that is resumed inside one request would otherwise hand that request's context to the next.
        reset_contextvars=True,
        # Nothing here asks where a request came from but by the certificate of who brings it.
        proxy_headers=False,
        server_header=False,
        date_header=False,
        access_log=False,
        # The application logs for itself, one JSON object a line.
        log_config=None,
        log_level="critical",
    )
    config.load()
    assert config.ssl is not None
    config.ssl.minimum_version = ssl.TLSVersion.TLSv1_3
    config.ssl.set_alpn_protocols(["http/1.1"])
    return config


def _bound(listen: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    bound = socket.socket(family)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((listen.host.strip("[]"), listen.port))
    bound.setblocking(False)
    return bound
