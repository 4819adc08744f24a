"""Composes the runners of tools: built-in ones, HTTP endpoints, upstreams and the sandboxed runners."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import grpc.aio

from libs.common.rpc.application import Resource
from libs.common.runtime.clock import Clock
from libs.common.runtime.process import instance_id
from libs.common.telemetry.log import Log
from services.executor.adapters.circuits.recent_changes import RecentChanges
from services.executor.adapters.registry.announce_runners import RunnerAnnouncer
from services.executor.adapters.runners.capabilities import Capabilities
from services.executor.adapters.runners.channel.cancellation import CancelGrace
from services.executor.adapters.runners.dispatch import DispatchingRunner
from services.executor.adapters.runners.factory import RunnerConfig, SandboxedRunners
from services.executor.adapters.runners.worker.pool import PoolLimits
from services.executor.adapters.sandbox.bubblewrap.sandbox import BubblewrapSandbox
from services.executor.adapters.sandbox.egress.proxy import EgressProxy
from services.executor.adapters.sandbox.gvisor.sandbox import GvisorSandbox
from services.executor.adapters.sandbox.launcher.cgroup_hierarchy import CgroupPolicy
from services.executor.adapters.sandbox.orphan_reaper import OrphanReaper
from services.executor.adapters.sandbox.pods.sandbox import PodSandbox
from services.executor.adapters.sandbox.port import Sandbox
from services.executor.config import Settings
from services.executor.domain.ports import AuditTrail, CommitLog, Runner, SecretStore
from services.executor.domain.resilience.list_circuits import CircuitReader
from services.executor.domain.resources.watch_resources import ResourceServers
from services.executor.domain.scheduling.heavy_work import HeavyWork
from services.executor.http_wiring import build_http_runner
from services.executor.pod_wiring import build_pods
from services.executor.upstream_wiring import build_upstreams


@dataclass(frozen=True, slots=True)
class Runners:
    """The runner of every kind of tool, and the announcer that tells the registry about them."""

    dispatch: Runner
    commits: CommitLog
    """The committed changes of sandboxed runs, by volume."""
    announcer: RunnerAnnouncer
    describe: Callable[[], str]
    """A line for operators per sandbox: what keeps its limits, or why it cannot be used."""
    resources: Sequence[Resource]
    watched: ResourceServers
    """The servers whose resources can be watched."""
    circuits: CircuitReader
    """The circuits of external services."""


def build_runners(
    settings: Settings,
    registry: grpc.aio.Channel,
    authz: grpc.aio.Channel,
    trail: AuditTrail,
    heavy_work: HeavyWork,
    clock: Clock,
    log: Log,
    *,
    builtin: Runner,
) -> Runners:
    """Build the runners. `builtin` runs the tools that ship with the executor."""
    http = build_http_runner(settings, authz, clock, log, trail, heavy_work)
    pods = build_pods(settings, log)
    sandboxed = build_sandboxed_runners(settings, http.secrets, log, heavy_work, pods)
    upstreams = build_upstreams(settings, registry, sandboxed, http, heavy_work, log)
    announcer = build_announcer(settings, registry, sandboxed, http.circuit_changes, log)
    reaper = OrphanReaper(log)
    if pods is not None:
        pods.listen(sandboxed.environment.refresh)
    return Runners(
        DispatchingRunner({"builtin": builtin, "http": http.runner, **upstreams.runners, **sandboxed.by_kind}),
        sandboxed.volumes,
        announcer,
        sandboxed.environment.tiers.describe,
        [
            Resource(reaper.start, reaper.stop),
            *http.resources,
            Resource(sandboxed.start, sandboxed.stop),
            *([] if pods is None else [Resource(start=pods.open)]),
            *upstreams.resources,
            Resource(announcer.start, announcer.stop),
        ],
        upstreams.watched,
        http.circuits,
    )


def build_sandboxed_runners(
    settings: Settings, secrets: SecretStore, log: Log, heavy_work: HeavyWork, pods: PodSandbox | None = None
) -> SandboxedRunners:
    """Build the runners of untrusted tools. `pods` is the sandbox of the tier `machine`."""
    instance, cgroups = instance_id(settings), CgroupPolicy(settings.sandbox_cgroups, settings.sandbox_cgroup_parent)
    sandboxes: dict[str, Sandbox] = {
        "process": BubblewrapSandbox(instance, cgroups=cgroups, folders=settings.sandbox_folders),
        "kernel": GvisorSandbox(instance, cgroups=cgroups, runsc=settings.runsc, folders=settings.sandbox_folders),
    }
    if pods is not None:
        sandboxes["machine"] = pods
    # One tenant has at most half of the workers, so that others are never without.
    workers = PoolLimits(
        max_workers=settings.workers,
        max_per_tenant=max(1, settings.workers // 2),
        start_seconds=settings.sandbox_start_seconds,
    )
    volumes = dict(settings.volumes)
    config = RunnerConfig(
        packs=settings.tool_packs,
        pack_poll_seconds=settings.tool_pack_poll_seconds,
        volumes=volumes,
        workers=workers,
        output_bytes=settings.result_max_bytes,
        cancel_grace=CancelGrace(settings.cancel_stop_seconds, settings.cancel_terminate_seconds),
        state_bytes=settings.checkpoint_state_bytes,
    )
    return SandboxedRunners(
        sandboxes,
        config,
        log,
        egress=lambda: EgressProxy(settings.egress_internal),
        heavy_work=heavy_work,
        secrets=secrets,
    )


def build_announcer(
    settings: Settings,
    registry: grpc.aio.Channel,
    sandboxed: SandboxedRunners,
    circuits: RecentChanges,
    log: Log,
) -> RunnerAnnouncer:
    """Build the announcer of the built-in tools, HTTP endpoints and the sandboxed runners."""

    def capabilities() -> Capabilities:
        confined = sandboxed.capabilities()
        return replace(confined, runners=("builtin", "http", "mcp", "grpc", "websocket", *confined.runners))

    def describe() -> None:
        for state in sandboxed.environment.tiers.describe().splitlines():
            log.info("sandbox", state=state)

    announcer = RunnerAnnouncer(
        registry, instance_id(settings), capabilities, log, on_probed=describe, circuits=circuits.current
    )
    sandboxed.environment.listen(announcer.announce_again)
    circuits.listen(announcer.announce_circuits)
    return announcer
