"""The composition root of the executor. With `job_wiring`, the only place that creates adapters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import grpc.aio
from sqlalchemy.ext.asyncio import AsyncEngine
from toolmesh.executor.v1 import executor_service_pb2_grpc as rpc
from toolmesh.executor.v1 import invocation_service_pb2_grpc as invocation_rpc
from toolmesh.executor.v1 import key_service_pb2_grpc as keys_rpc
from toolmesh.executor.v1 import tool_log_service_pb2_grpc as logs_rpc

from libs.authz_client.jwks import authz_channel, verifier_from
from libs.common.auth.constraints import ConstraintChecker
from libs.common.auth.revocations import RevocationView
from libs.common.ids import new_id
from libs.common.rpc.application import Resource, RpcApplication, channel_resource, engine_resource
from libs.common.rpc.client import channel_to
from libs.common.rpc.server import Service
from libs.common.runtime.clock import Clock, SystemClock
from libs.common.runtime.process import instance_id
from libs.common.runtime.tasks import PeriodicTask
from libs.common.sql.engine import engine_for
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from services.executor.adapters.approval.ticket_client import TicketClient, ticket_channel
from services.executor.adapters.audit.durable_trail import DurableTrail
from services.executor.adapters.audit.outbox import Outbox
from services.executor.adapters.audit.record_encoder import RecordEncoder
from services.executor.adapters.audit.stream import AuditStream
from services.executor.adapters.authz.decision_client import PolicyAuthorizer
from services.executor.adapters.budget.lazy_budget import LazyBudget
from services.executor.adapters.hooks.hooks_file import read_hooks_file
from services.executor.adapters.idempotency.claims import PostgresClaims
from services.executor.adapters.idempotency.keys import PostgresKeys
from services.executor.adapters.preview_tokens import SealedPreviewTokens
from services.executor.adapters.registry.announce_runners import RunnerAnnouncer
from services.executor.adapters.registry.quarantine import QuarantiningView
from services.executor.adapters.registry.register_builtins import BuiltinRegistrar
from services.executor.adapters.registry.tool_view import RegistryToolView
from services.executor.adapters.results.memory_cache import MemoryResultCache
from services.executor.adapters.results.postgres_store import PostgresResultStore
from services.executor.adapters.runners.builtin import BuiltinRunner
from services.executor.adapters.runners.capabilities import Capabilities
from services.executor.adapters.runners.channel.cancellation import CancelGrace
from services.executor.adapters.runners.dispatch import DispatchingRunner
from services.executor.adapters.runners.factory import RunnerConfig, SandboxedRunners
from services.executor.adapters.runners.worker.pool import PoolLimits
from services.executor.adapters.sandbox.bubblewrap.sandbox import BubblewrapSandbox
from services.executor.adapters.sandbox.egress.proxy import EgressProxy
from services.executor.adapters.sandbox.gvisor.sandbox import GvisorSandbox
from services.executor.adapters.sandbox.launcher.cgroup_hierarchy import CgroupPolicy
from services.executor.adapters.sandbox.port import Sandbox
from services.executor.adapters.telemetry.metrics import Metrics
from services.executor.adapters.telemetry.queue_metrics import QueueMetrics, export_queue_length
from services.executor.adapters.telemetry.spans import SampledSpans
from services.executor.adapters.tool_logs.postgres_logs import PostgresToolLogs
from services.executor.adapters.tool_logs.writer import ToolLogWriter
from services.executor.builtin.arithmetic import Arithmetic
from services.executor.builtin.clock_now import ClockNow
from services.executor.builtin.echo import Echo
from services.executor.builtin.tool import BuiltinTool
from services.executor.config import Settings
from services.executor.domain.errors import ToolUnavailableError
from services.executor.domain.idempotency.list_keys import ListKeys
from services.executor.domain.idempotency.settle_key import SettleKey
from services.executor.domain.invoke.invoke import Invoke
from services.executor.domain.invoke_group.invoke_group import InvokeGroup
from services.executor.domain.model import Caller
from services.executor.domain.phases.pipeline import Pipeline, Ports
from services.executor.domain.phases.supervise import InFlight, Supervisor
from services.executor.domain.ports import Runner
from services.executor.domain.preview.preview_invocation import PreviewInvocation
from services.executor.domain.results.fetch_result import FetchResult
from services.executor.domain.results.store import LargeResults
from services.executor.domain.scheduling.caller_limits import CallerBounds, CallerLimits, LimitedCalls
from services.executor.domain.scheduling.heavy_work import HeavyWork
from services.executor.domain.scheduling.refused_calls import RefusedCalls
from services.executor.domain.scheduling.scheduler import Bounds, Scheduler
from services.executor.domain.scheduling.slots import SlotPool
from services.executor.domain.tool_logs.list_tool_logs import ListToolLogs
from services.executor.handlers.executor import ExecutorHandlers
from services.executor.handlers.key import KeyHandlers
from services.executor.handlers.tool_log import ToolLogHandlers
from services.executor.http_wiring import build_http_runner
from services.executor.job_wiring import build_jobs
from services.executor.migrations import SCHEMA
from services.executor.policy import POLICY
from services.executor.upstream_wiring import build_upstreams

SERVICE = "toolmesh.executor.v1.ExecutorService"
KEY_SERVICE = "toolmesh.executor.v1.KeyService"
INVOCATION_SERVICE = "toolmesh.executor.v1.InvocationService"
LOG_SERVICE = "toolmesh.executor.v1.ToolLogService"
SWEEP_SECONDS = 300.0


async def build(settings: Settings, log: Log, tracing: Tracing) -> RpcApplication:
    """Compose the process. It is ready once it has the registry's tools."""
    return compose(settings, log, tracing, clock=SystemClock(), tools=builtin_tools(SystemClock()))


def builtin_tools(clock: Clock) -> list[BuiltinTool]:
    """Return the tools that ship with the executor."""
    return [Echo(), ClockNow(clock), Arithmetic()]


def compose(
    settings: Settings,
    log: Log,
    tracing: Tracing,
    *,
    clock: Clock,
    tools: Sequence[BuiltinTool],
    builtin_runner: Callable[[Sequence[BuiltinTool], Log], Runner] = BuiltinRunner,
) -> RpcApplication:
    """Compose the process with a clock, its built-in tools and their runner."""
    authz, registry, audit, approval = open_channels(settings)
    database = engine_for(settings.database_url, schema=SCHEMA.name)
    in_flight = InFlight()
    verifier = verifier_from(authz, settings, log)
    view = RegistryToolView(registry, clock, log)
    quarantine = QuarantiningView(view, registry, log)
    cache = build_cache(settings, view, clock)
    store = PostgresResultStore(database, settings.sealing_keys)
    hooks, heavy_work = read_hooks_file(settings.hooks), HeavyWork()
    sandboxed = build_sandboxed_runners(settings, log, heavy_work)
    upstreams = build_upstreams(settings, registry, sandboxed, log)
    scheduler = build_scheduler(settings, clock)
    encoder = RecordEncoder(instance_id(settings), settings.redaction_rules)
    trail = build_trail(settings, audit, database, log, in_flight, encoder)
    http = build_http_runner(settings, clock, log, trail, heavy_work)
    claims = build_claims(database, settings, encoder)
    budget = LazyBudget(settings.redis_url)
    announcer = build_announcer(settings, registry, sandboxed, log)
    registrar = BuiltinRegistrar(registry, [tool.manifest for tool in tools], log, after=announcer.wait)
    logs = PostgresToolLogs(
        database,
        settings.sealing_keys,
        seconds=settings.tool_log_seconds,
        tenant_bytes=settings.tool_log_tenant_bytes,
    )
    log_writer = ToolLogWriter(logs.store, log)
    ports = Ports(
        tools=quarantine,
        authorizer=PolicyAuthorizer(authz, clock, verifier.view),
        audit=trail,
        runner=DispatchingRunner(
            {
                "builtin": builtin_runner(tools, log),
                "http": http.runner,
                "mcp": upstreams.runner,
                **sandboxed.by_kind,
            }
        ),
        claims=claims,
        commits=sandboxed.volumes,
        spending=budget,
        previews=SealedPreviewTokens(settings.sealing_keys, clock),
        quarantine=quarantine,
        cache=cache,
        large_results=LargeResults(store, settings.result_ttl_seconds, settings.result_max_bytes),
        slots=SlotPool(scheduler, clock),
        logs=log_writer,
        hooks=hooks.open(clock, log, heavy_work),
        heavy_work=heavy_work,
        observer=Metrics(log),
        spans=SampledSpans(tracing),
        clock=clock,
        scanners=settings.redaction_rules,
        satisfies=ConstraintChecker(),
        approvals=TicketClient(approval),
    )
    pipeline = Pipeline(
        ports,
        in_flight=in_flight,
        audit_wait=settings.audit_wait_seconds,
        start_seconds=settings.sandbox_start_seconds,
    )
    verifier.view.listen(lambda: cancel_revoked(pipeline.supervisor, verifier.view, log))
    view.listen_withdrawn(lambda error: cancel_withdrawn(pipeline.supervisor, error, log))
    claims.listen(
        pipeline.supervisor.active.cancel_lost_claim, lambda cause: log.error("claim leases not renewed", cause=cause)
    )
    invoke = Invoke(pipeline)
    refused = RefusedCalls(invoke.record_not_started)
    limits = CallerLimits(CallerBounds(subject=settings.subject_calls, tenant=settings.tenant_calls))
    jobs = build_jobs(settings, database, pipeline, limits, refused, verifier, log)
    handlers = build_handlers(
        pipeline,
        invoke,
        refused,
        ports,
        store,
        limits,
        revoked=lambda caller: verifier.view.refuses(caller.token_lineage),
    )
    keys = PostgresKeys(database, settings.sealing_keys, encoder.encode)
    key_handlers = KeyHandlers(ListKeys(keys), SettleKey(keys, quarantine, settings.redaction_rules, clock))
    log_handlers = ToolLogHandlers(ListToolLogs(logs))
    return RpcApplication(
        settings,
        log,
        tracing,
        policy=POLICY,
        verifier=verifier,
        services=[
            Service(SERVICE, lambda server: rpc.add_ExecutorServiceServicer_to_server(handlers, server)),
            Service(
                INVOCATION_SERVICE,
                lambda server: invocation_rpc.add_InvocationServiceServicer_to_server(jobs.handlers, server),
            ),
            Service(KEY_SERVICE, lambda server: keys_rpc.add_KeyServiceServicer_to_server(key_handlers, server)),
            Service(LOG_SERVICE, lambda server: logs_rpc.add_ToolLogServiceServicer_to_server(log_handlers, server)),
        ],
        # Stopped in reverse order: the trail flushes before its channel and its database close.
        resources=[
            *(channel_resource(channel) for channel in (authz, registry, audit, approval)),
            engine_resource(database, SCHEMA),
            *maintenance(claims, store, log),
            sweeper("jobs", jobs.store.sweep, log),
            sweeper("checkpoints", jobs.checkpoints.sweep, log),
            sweeper("callback_deliveries", jobs.deliveries.sweep, log),
            *jobs.signals,
            sweeper("tool_logs", logs.sweep, log),
            Resource(log_writer.start, log_writer.stop),
            Resource(stop=budget.close),
            Resource(trail.start, trail.stop),
            Resource(stop=refused.stop),
            Resource(sandboxed.start, sandboxed.stop),
            *http.resources,
            *upstreams.resources,
            Resource(announcer.start, announcer.stop),
            Resource(registrar.start, registrar.stop),
            Resource(view.start, view.stop),
            Resource(stop=quarantine.stop),
            Resource(stop=hooks.close),
            # Ready only once the registry can tell that its tools have a runner.
            Resource(announcer.wait),
            *jobs.runner,
        ],
    )


def build_handlers(
    pipeline: Pipeline,
    invoke: Invoke,
    refused: RefusedCalls,
    ports: Ports,
    store: PostgresResultStore,
    limits: CallerLimits,
    *,
    revoked: Callable[[Caller], bool],
) -> ExecutorHandlers:
    """Build the use cases of the RPCs."""
    group = InvokeGroup(invoke, ports.tools, ports.clock, ports.heavy_work, revoked=revoked)
    preview = PreviewInvocation(pipeline, ports.previews)
    pipeline.gate.preview = preview.execute
    return ExecutorHandlers(
        LimitedCalls(limits, invoke.execute, lambda request: [request], refused),
        LimitedCalls(limits, group.execute, lambda calls: [call.request for call in calls], refused),
        LimitedCalls(limits, preview.execute, lambda request: [request], refused),
        FetchResult(store),
    )


def maintenance(claims: PostgresClaims, store: PostgresResultStore, log: Log) -> list[Resource]:
    """Return the resources that delete expired rows and renew claim leases."""
    return [
        sweeper("claims", claims.sweep, log),
        sweeper("results", store.sweep, log),
        Resource(stop=claims.stop),
    ]


def cancel_revoked(supervisor: Supervisor, view: RevocationView, log: Log) -> None:
    """Cancel the invocations whose tokens were revoked."""
    if canceled := supervisor.active.cancel_revoked(lambda caller: view.refuses(caller.token_lineage)):
        log.info("invocations canceled: their tokens were revoked", count=canceled)


def cancel_withdrawn(supervisor: Supervisor, error: ToolUnavailableError, log: Log) -> None:
    """Cancel the invocations of a version that was quarantined or removed."""
    if canceled := supervisor.active.cancel_withdrawn(error):
        log.info("invocations canceled: their tool was withdrawn", name=error.version.name, count=canceled)


def open_channels(
    settings: Settings,
) -> tuple[grpc.aio.Channel, grpc.aio.Channel, grpc.aio.Channel, grpc.aio.Channel]:
    """Open the channels to authz, registry, audit and approval."""
    return (
        authz_channel(settings.authz_address, settings, repeatable=["Check"]),
        channel_to("registry", settings.registry_address, settings),
        channel_to("audit", settings.audit_address, settings, for_callers=False),
        ticket_channel(settings.approval_address, settings),
    )


def build_trail(
    settings: Settings,
    channel: grpc.aio.Channel,
    database: AsyncEngine,
    log: Log,
    in_flight: InFlight,
    encoder: RecordEncoder,
) -> DurableTrail:
    """Build the audit trail: the stream that all calls share, and its outbox."""
    # Unique per process: a restarted process with the same instance id must wait for the lease too.
    owner = f"{instance_id(settings)}/{new_id()}"
    outbox = Outbox(database, encoder, log, owner=owner)
    stream = AuditStream(channel, encoder, log, active=lambda: in_flight.count, on_settled=outbox.mark_settled)
    outbox.attach(stream)
    return DurableTrail(stream, outbox, log)


def build_sandboxed_runners(settings: Settings, log: Log, heavy_work: HeavyWork) -> SandboxedRunners:
    """Build the runners of untrusted tools."""
    instance, cgroups = instance_id(settings), CgroupPolicy(settings.sandbox_cgroups, settings.sandbox_cgroup_parent)
    sandboxes: dict[str, Sandbox] = {
        "process": BubblewrapSandbox(instance, cgroups=cgroups),
        "kernel": GvisorSandbox(instance, cgroups=cgroups, runsc=settings.runsc),
    }
    # One tenant has at most half of the workers, so that others are never without.
    workers = PoolLimits(
        max_workers=settings.workers,
        max_per_tenant=max(1, settings.workers // 2),
        start_seconds=settings.sandbox_start_seconds,
    )
    volumes = dict(settings.volumes)
    config = RunnerConfig(
        settings.tool_packs,
        volumes,
        workers,
        output_bytes=settings.result_max_bytes,
        cancel_grace=CancelGrace(settings.cancel_stop_seconds, settings.cancel_terminate_seconds),
        state_bytes=settings.checkpoint_state_bytes,
    )
    return SandboxedRunners(
        sandboxes, config, log, egress=lambda: EgressProxy(settings.egress_internal), heavy_work=heavy_work
    )


def build_announcer(
    settings: Settings, registry: grpc.aio.Channel, sandboxed: SandboxedRunners, log: Log
) -> RunnerAnnouncer:
    """Build the announcer of the built-in tools, HTTP endpoints and the sandboxed runners."""

    def capabilities() -> Capabilities:
        confined = sandboxed.capabilities()
        return replace(confined, runners=("builtin", "http", "mcp", *confined.runners))

    return RunnerAnnouncer(registry, instance_id(settings), capabilities, log)


def build_claims(database: AsyncEngine, settings: Settings, encoder: RecordEncoder) -> PostgresClaims:
    """Build the store of idempotency claims."""
    owner, lease = instance_id(settings), settings.claim_lease_seconds
    return PostgresClaims(database, owner, settings.sealing_keys, encoder.encode, lease=lease)


def build_cache(settings: Settings, view: RegistryToolView, clock: Clock) -> MemoryResultCache:
    """Build the result cache, which is invalidated when a tool version changes."""
    cache = MemoryResultCache(clock, max_bytes=settings.result_cache_bytes)
    view.listen(cache.invalidate)
    return cache


def build_scheduler(settings: Settings, clock: Clock) -> Scheduler:
    """Build the scheduler with its queue metrics."""
    bounds = Bounds(
        tool=settings.tool_concurrency,
        service=settings.service_concurrency,
        sandboxes=settings.sandbox_concurrency,
        waiting=settings.queue_limit,
        waiting_per_tool=max(1, settings.queue_limit // 2),
        shared_volumes=frozenset(name for name, volume in settings.volumes if volume.shared),
        waiting_per_tenant=max(1, settings.queue_limit // 4),
    )
    scheduler = Scheduler(clock, bounds, QueueMetrics())
    export_queue_length(scheduler)
    return scheduler


def sweeper(name: str, sweep: Callable[[], Awaitable[int]], log: Log) -> Resource:
    """Return a resource that deletes expired rows every few minutes."""

    async def sweep_all() -> None:
        while deleted := await sweep():
            log.debug("expired rows deleted", table=name, count=deleted)

    task = PeriodicTask(f"sweep-{name}", sweep_all, log, interval=SWEEP_SECONDS)
    return Resource(task.start, task.stop)
