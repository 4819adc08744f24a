"""Starts and connects to the servers of upstreams."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from toolmesh.registry.v1 import upstream_pb2

from libs.common.egress.public_addresses import Network, PublicAddresses
from libs.common.egress.resolver import SystemResolver
from services.executor.adapters.runners.environment import RunnerEnvironment
from services.executor.adapters.runners.http.connections import HttpConnections
from services.executor.adapters.sandbox.egress.proxy_bridge import PROXY_ENVIRONMENT, bridged_command
from services.executor.adapters.sandbox.port import Plan, Sandbox
from services.executor.adapters.secrets.binding import bind_metadata
from services.executor.adapters.upstreams.directory import UpstreamConfig
from services.executor.adapters.upstreams.grpc.channel import open_channel
from services.executor.adapters.upstreams.grpc.server import GrpcServer
from services.executor.adapters.upstreams.mcp.http import CheckedBackend, HttpServer, HttpTransport
from services.executor.adapters.upstreams.mcp.secrets import ServerSecrets, read_secrets
from services.executor.adapters.upstreams.mcp.stdio import ConfinedServer
from services.executor.adapters.upstreams.mcp.transport import ServerLostError
from services.executor.adapters.upstreams.openapi.document import OpenApiSource
from services.executor.adapters.upstreams.source import Source
from services.executor.adapters.upstreams.websocket.connection import MAX_MESSAGE_BYTES, WebSocketConnector
from services.executor.adapters.upstreams.websocket.service import WebSocketService
from services.executor.domain.errors import sandbox_missing
from services.executor.domain.ports import SecretStore
from services.executor.domain.scheduling.heavy_work import Owner

TIER = "process"
MAX_AGE_SECONDS = 30.0
_PORTS = (80, 443)
_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/tmp",  # noqa: S108
    "TMPDIR": "/tmp",  # noqa: S108
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "PYTHONDONTWRITEBYTECODE": "1",
}
_MEMORY_BYTES, _SCRATCH_BYTES = 1 << 30, 256 << 20
_PROCESSES, _MILLICPUS, _CPU_SECONDS = 64, 1000, 24 * 3600.0


class Servers:
    """Opens servers. What it opens belongs to the caller, who ends or closes it."""

    def __init__(
        self, environment: RunnerEnvironment, internal: Sequence[Network], secrets: SecretStore, *, max_bytes: int
    ) -> None:
        """`max_bytes` bounds one message of a server."""
        self._environment, self._max_bytes, self._internal = environment, max_bytes, internal
        self._secrets = secrets
        self._addresses, self._resolver = PublicAddresses(internal), SystemResolver()

    def sandbox(self) -> Sandbox:
        """Return the sandbox of confined servers. Raises SANDBOX_UNAVAILABLE."""
        sandbox = self._environment.tiers.weakest(TIER)
        if sandbox is None:
            raise sandbox_missing(TIER, "no sandbox works on this machine")
        return sandbox

    async def read_secrets(self, upstream: UpstreamConfig, owner: Owner) -> ServerSecrets:
        """Return the credentials of an MCP server, as they are now for one caller. Raises the errors of credentials."""
        return await read_secrets(upstream, owner.tenant, self._secrets)

    async def start(self, upstream: UpstreamConfig, owner: Owner, secrets: ServerSecrets) -> ConfinedServer:
        """Start a confined server for one caller and wait until it has listed its tools.

        Raises ServerLostError and the errors of requests and sandboxes.
        """
        endpoint = upstream.endpoint.mcp_stdio
        if missing := await asyncio.to_thread(_missing_paths, endpoint):
            raise ServerLostError(f"there is no {missing[0][:200]} on the executor's machine")
        hosts = tuple(host.lower() for host in endpoint.allowed_hosts)
        gate = await self._environment.open_egress_to(hosts, _PORTS) if hosts else None
        try:
            plan = _plan(endpoint, secrets, "" if gate is None else gate.path)
            process = await self.sandbox().start(plan)
        except BaseException:
            if gate is not None:
                await gate.close()
            raise
        share = self._environment.heavy_work.share_of(owner)
        server = ConfinedServer(process, share, self._max_bytes, gate, secrets)
        try:
            await server.open()
        except BaseException:
            await asyncio.shield(server.end())
            raise
        return server

    def connect(self, upstream: UpstreamConfig, owner: Owner) -> HttpServer:
        """Return a server over HTTP for one caller, not opened yet."""
        url = upstream.endpoint.mcp_http.url
        resolve = partial(self._resolver.resolve, group=upstream.upstream_id)
        backend = CheckedBackend(resolve, self._addresses, plaintext=url.startswith("http:"))
        share = self._environment.heavy_work.share_of(owner)
        return HttpServer(HttpTransport(url, backend, share, self._max_bytes), share, max_age=MAX_AGE_SECONDS)

    def open_source(self, upstream: UpstreamConfig) -> Source:
        """Return an upstream that describes itself."""
        if upstream.endpoint.WhichOneof("kind") == "grpc":
            return self.grpc_server(upstream)
        if upstream.endpoint.WhichOneof("kind") == "websocket":
            return self.websocket_service(upstream)
        return OpenApiSource(upstream.endpoint.openapi, HttpConnections(self._internal))

    def grpc_server(self, upstream: UpstreamConfig) -> GrpcServer:
        """Return a gRPC server, not connected yet."""
        endpoint = upstream.endpoint.grpc
        resolve = partial(self._resolver.resolve, group=upstream.upstream_id)
        return GrpcServer(endpoint, partial(open_channel, endpoint, resolve, self._addresses, self._max_bytes))

    def websocket_service(self, upstream: UpstreamConfig) -> WebSocketService:
        """Return a WebSocket service, not connected yet."""
        endpoint = upstream.endpoint.websocket
        resolve = partial(self._resolver.resolve, group=upstream.upstream_id)
        connector = WebSocketConnector(
            endpoint.url, endpoint.subprotocols, resolve, self._addresses, min(self._max_bytes, MAX_MESSAGE_BYTES)
        )

        async def headers() -> dict[str, str]:
            bound = await bind_metadata(endpoint.secrets, upstream.upstream_id, connector.host, "", self._secrets)
            return {use.key: use.prefix + secret.value for use, secret in bound}

        return WebSocketService(endpoint, connector, headers)

    def close(self) -> None:
        """Stop the threads of lookups."""
        self._resolver.close()


def _plan(endpoint: upstream_pb2.McpStdioEndpoint, secrets: ServerSecrets, egress_socket: str) -> Plan:
    command = tuple(endpoint.command)
    proxies = PROXY_ENVIRONMENT if egress_socket else {}
    return Plan(
        argv=bridged_command(command) if egress_socket else command,
        environment={**_ENVIRONMENT, **proxies, **endpoint.environment, **secrets.places},
        readable=tuple((mount.path, mount.path) for mount in endpoint.mounts),
        memory_bytes=_MEMORY_BYTES,
        scratch_bytes=_SCRATCH_BYTES,
        file_bytes=_SCRATCH_BYTES,
        processes=_PROCESSES,
        millicpus=_MILLICPUS,
        cpu_seconds=_CPU_SECONDS,
        egress_socket=egress_socket,
        loopback=bool(egress_socket),
    )


def _missing_paths(endpoint: upstream_pb2.McpStdioEndpoint) -> list[str]:
    return [mount.path for mount in endpoint.mounts if not Path(mount.path).exists()]
