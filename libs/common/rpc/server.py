"""The gRPC server of a process: mutual TLS, the chain around every method, health, reflection, and a graceful drain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer

from libs.common.rpc.chain import Chain, ChainedMethods
from libs.common.rpc.limits import MAX_MESSAGE_BYTES, MAX_RECEIVED_BYTES
from libs.common.rpc.reflection import add_reflection
from libs.common.rpc.tls_files import Credentials, TlsFiles, TlsMaterial
from libs.common.runtime.settings import ProcessSettings

_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@dataclass(frozen=True)
class Service:
    """One gRPC service: its full name, and the function that adds its handlers to a server."""

    name: str
    add: Callable[[grpc.aio.Server], None]


class WatchedHealth(HealthServicer):
    """A health service whose watches end with the server; otherwise they would prolong the drain."""

    def __init__(self) -> None:
        super().__init__()
        self._watches: set[asyncio.Task[Any]] = set()

    async def Watch(self, request: Any, context: Any) -> None:
        """Stream every change of a service's health."""
        watch = asyncio.current_task()
        assert watch is not None
        self._watches.add(watch)
        try:
            await super().Watch(request, context)
        finally:
            self._watches.discard(watch)

    def end_watches(self) -> None:
        """End every watch."""
        for watch in self._watches:
            watch.cancel()


class RpcServer:
    """Serves gRPC; drains before it stops."""

    def __init__(
        self, settings: ProcessSettings, chain: Chain, services: Sequence[Service], *, public: Sequence[str] = ()
    ) -> None:
        """`public` are the services, of any process, that reflection describes to callers of the edge."""
        self._settings = settings
        self._names = [service.name for service in services]
        self._health = WatchedHealth()
        self._ready = False
        self._finish = chain.finish
        self._server = grpc.aio.server(options=_options(settings.max_concurrent_calls))
        methods: Any = ChainedMethods(chain)
        for service in services:
            service.add(methods)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, methods)
        add_reflection(self._names, methods, public=public)
        self._server.add_generic_rpc_handlers((methods,))
        self.port = self._server.add_secure_port(str(settings.listen), server_credentials(settings))

    @property
    def ready(self) -> bool:
        """True while the server accepts new calls."""
        return self._ready

    async def start(self) -> None:
        """Start to listen; not yet ready."""
        await self.set_ready(False)
        await self._server.start()

    async def set_ready(self, ready: bool) -> None:
        """Report to health checks whether new calls are accepted."""
        self._ready = ready
        for name in ["", *self._names]:
            await self._health.set(name, _SERVING if ready else _NOT_SERVING)

    async def drain(self) -> None:
        """Report not serving, finish the accepted calls, and cancel the rest after the limit.

        During the delay calls are still accepted, until clients have noticed: gRPC would cancel calls that have arrived
        but have not reached a handler.
        """
        await self.set_ready(False)
        await asyncio.sleep(self._settings.drain_delay_seconds)
        self._health.end_watches()
        await asyncio.shield(self._server.stop(self._settings.drain_seconds))
        self._finish()


def server_credentials(settings: Credentials) -> grpc.ServerCredentials:
    """Return credentials that require a certificate of the mesh from every peer.

    Connections that begin after the TLS files were replaced use the new ones.
    """
    files = TlsFiles(settings)

    def renew() -> Any:
        # Called for each handshake; None keeps the present configuration, which the stubs of gRPC's types leave out.
        material = files.renewed()
        return None if material is None else _configuration(material)

    return grpc.dynamic_ssl_server_credentials(_configuration(files.current), renew, require_client_authentication=True)


def _configuration(tls: TlsMaterial) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(tls.key, tls.certificate)], tls.authority)


def _options(max_concurrent_calls: int) -> list[tuple[str, Any]]:
    return [
        ("grpc.max_receive_message_length", MAX_RECEIVED_BYTES),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_metadata_size", 32 * 1024),
        # Above the chain's own limit, so that its typed refusal comes first; this one guards against a flood.
        ("grpc.max_concurrent_streams", max_concurrent_calls * 2),
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        ("grpc.http2.max_ping_strikes", 0),
        # Otherwise a second process on the same port would silently take half of the calls.
        ("grpc.so_reuseport", 0),
    ]
