"""Composes what the executor needs of upstreams: their directory, their monitor and their runner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import grpc.aio

from libs.common.rpc.application import Resource
from libs.common.rpc.stream_slots import StreamLimits
from libs.common.runtime.process import instance_id
from libs.common.telemetry.log import Log
from services.executor.adapters.runners.factory import SandboxedRunners
from services.executor.adapters.runners.middleware import ErrorMappingRunner, MetricsRunner
from services.executor.adapters.runners.upstreams.grpc import GrpcRunner
from services.executor.adapters.runners.upstreams.mcp import McpRunner
from services.executor.adapters.runners.upstreams.websocket import WebSocketRunner
from services.executor.adapters.runners.worker.pool import PoolLimits, WorkerPool
from services.executor.adapters.upstreams.directory import UpstreamDirectory
from services.executor.adapters.upstreams.mcp.stdio import ConfinedServer
from services.executor.adapters.upstreams.mcp.watched_resources import UpstreamResources
from services.executor.adapters.upstreams.monitor import UpstreamMonitor
from services.executor.adapters.upstreams.servers import Servers
from services.executor.config import Settings
from services.executor.domain.ports import Runner
from services.executor.domain.scheduling.heavy_work import HeavyWork
from services.executor.http_wiring import HttpParts

# Servers that run in a process of the caller's own, which watches its resources.
_CONFINED_WATCHES = 2


@dataclass(frozen=True, slots=True)
class UpstreamParts:
    """The runners of upstreams by kind, and what is started and stopped with them."""

    runners: Mapping[str, Runner]
    resources: list[Resource]
    watched: UpstreamResources


def build_upstreams(
    settings: Settings,
    registry: grpc.aio.Channel,
    sandboxed: SandboxedRunners,
    http: HttpParts,
    heavy_work: HeavyWork,
    log: Log,
) -> UpstreamParts:
    """Build the runners of MCP tools, gRPC methods and WebSocket operations.

    Stopped in reverse order: the watch ends before the servers.
    """
    limits = PoolLimits(
        max_workers=settings.workers,
        max_per_tenant=max(1, settings.workers // 2),
        start_seconds=settings.sandbox_start_seconds,
    )
    directory = UpstreamDirectory(registry, log)
    servers = Servers(
        sandboxed.environment, settings.egress_internal, http.secrets, max_bytes=settings.result_max_bytes
    )
    pool: WorkerPool[ConfinedServer] = WorkerPool(limits, log)
    monitor = UpstreamMonitor(directory, servers, http.circuits, registry, instance_id(settings), log)
    http.circuits.listen(monitor.follow_circuit)
    mcp = McpRunner(directory, servers, pool, http.circuits, log, monitor.request_check)
    rpc = GrpcRunner(
        directory,
        servers,
        http.secrets,
        http.circuits,
        heavy_work,
        log,
        monitor.request_check,
        output_bytes=settings.result_max_bytes,
    )

    sockets = WebSocketRunner(
        directory,
        servers,
        http.secrets,
        http.circuits,
        heavy_work,
        log,
        monitor.request_check,
        output_bytes=settings.result_max_bytes,
    )
    runners: dict[str, Runner] = {"mcp": mcp, "grpc": rpc, "websocket": sockets}

    async def close_servers() -> None:
        await pool.close()
        await mcp.close()
        await rpc.close()
        servers.close()

    return UpstreamParts(
        {kind: MetricsRunner(ErrorMappingRunner(runner, log), kind) for kind, runner in runners.items()},
        [Resource(stop=close_servers), Resource(stop=monitor.stop), Resource(directory.start, directory.stop)],
        UpstreamResources(
            directory,
            servers,
            StreamLimits(_CONFINED_WATCHES, per_tenant=limits.max_per_tenant, per_process=limits.max_workers),
        ),
    )
