"""Composes what the executor needs of upstreams: their directory, their monitor and their runner."""

from __future__ import annotations

from dataclasses import dataclass

import grpc.aio

from libs.common.rpc.application import Resource
from libs.common.runtime.process import instance_id
from libs.common.telemetry.log import Log
from services.executor.adapters.runners.factory import SandboxedRunners
from services.executor.adapters.runners.mcp import McpRunner
from services.executor.adapters.runners.middleware import ErrorMappingRunner, MetricsRunner
from services.executor.adapters.runners.worker.pool import PoolLimits, WorkerPool
from services.executor.adapters.upstreams.directory import UpstreamDirectory
from services.executor.adapters.upstreams.mcp.stdio import ConfinedServer
from services.executor.adapters.upstreams.monitor import UpstreamMonitor
from services.executor.adapters.upstreams.servers import Servers
from services.executor.config import Settings
from services.executor.domain.ports import Runner


@dataclass(frozen=True, slots=True)
class UpstreamParts:
    """The runner of upstreams, and what is started and stopped with it."""

    runner: Runner
    resources: list[Resource]


def build_upstreams(
    settings: Settings, registry: grpc.aio.Channel, sandboxed: SandboxedRunners, log: Log
) -> UpstreamParts:
    """Build the runner of MCP tools. Stopped in reverse order: the watch ends before the servers."""
    limits = PoolLimits(
        max_workers=settings.workers,
        max_per_tenant=max(1, settings.workers // 2),
        start_seconds=settings.sandbox_start_seconds,
    )
    directory = UpstreamDirectory(registry, log)
    servers = Servers(sandboxed.environment, settings.egress_internal, max_bytes=settings.result_max_bytes)
    pool: WorkerPool[ConfinedServer] = WorkerPool(limits, log)
    monitor = UpstreamMonitor(directory, servers, registry, instance_id(settings), log)
    runner = McpRunner(directory, servers, pool, log, monitor.request_check)

    async def close_servers() -> None:
        await pool.close()
        await runner.close()
        servers.close()

    return UpstreamParts(
        MetricsRunner(ErrorMappingRunner(runner, log), "mcp"),
        [Resource(stop=close_servers), Resource(stop=monitor.stop), Resource(directory.start, directory.stop)],
    )
