"""The composition root of the executor. With the other wiring modules, the only place that creates adapters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import grpc.aio
from toolmesh.executor.v1 import circuit_service_pb2_grpc as circuits_rpc
from toolmesh.executor.v1 import executor_service_pb2_grpc as rpc
from toolmesh.executor.v1 import invocation_service_pb2_grpc as invocation_rpc
from toolmesh.executor.v1 import key_service_pb2_grpc as keys_rpc
from toolmesh.executor.v1 import tool_log_service_pb2_grpc as logs_rpc

from libs.authz_client.jwks import authz_channel, verifier_from
from libs.common.auth.constraints import ConstraintChecker
from libs.common.auth.revocations import RevocationView
from libs.common.rpc.application import Resource, RpcApplication, channel_resource, engine_resource
from libs.common.rpc.client import channel_to
from libs.common.rpc.server import Service
from libs.common.rpc.stream_slots import StreamLimits, StreamSlots
from libs.common.runtime.clock import Clock, SystemClock
from libs.common.sql.engine import engine_for
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from services.executor.adapters.approval.ticket_client import TicketClient, ticket_channel
from services.executor.adapters.authz.decision_client import PolicyAuthorizer
from services.executor.adapters.hooks.hooks_file import DeclaredHooks, read_hooks_file
from services.executor.adapters.idempotency.claims import PostgresClaims
from services.executor.adapters.preview_tokens import SealedPreviewTokens
from services.executor.adapters.registry.quarantine import QuarantineRefusingTools
from services.executor.adapters.registry.register_builtins import BuiltinRegistrar
from services.executor.adapters.registry.tool_view import RegistryToolView
from services.executor.adapters.results.memory_cache import MemoryResultCache
from services.executor.adapters.results.postgres_store import PostgresResultStore
from services.executor.adapters.runners.builtin import BuiltinRunner
from services.executor.adapters.telemetry.abuse_signals import AbuseSignals
from services.executor.adapters.telemetry.metrics import Metrics
from services.executor.adapters.telemetry.queue_metrics import QueueMetrics, export_queue_length
from services.executor.adapters.telemetry.spans import SampledSpans
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
from services.executor.domain.resilience.list_circuits import ListCircuits
from services.executor.domain.resources.watch_resources import WatchResources
from services.executor.domain.results.fetch_result import FetchResult
from services.executor.domain.results.store import LargeResults
from services.executor.domain.scheduling.caller_limits import CallerBounds, CallerLimits, LimitedCalls
from services.executor.domain.scheduling.heavy_work import HeavyWork
from services.executor.domain.scheduling.refused_calls import RefusedCalls
from services.executor.domain.scheduling.scheduler import Bounds, Scheduler
from services.executor.domain.scheduling.slots import SlotPool
from services.executor.domain.tool_logs.list_tool_logs import ListToolLogs
from services.executor.handlers.circuit import CircuitHandlers
from services.executor.handlers.executor import ExecutorHandlers
from services.executor.handlers.invocation import InvocationHandlers
from services.executor.handlers.key import KeyHandlers
from services.executor.handlers.tool_log import ToolLogHandlers
from services.executor.job_wiring import build_jobs
from services.executor.migrations import SCHEMA
from services.executor.policy import POLICY
from services.executor.runner_wiring import Runners, build_runners
from services.executor.storage_wiring import Storage, build_storage

# Each holds a connection to its server.
WATCH_LIMITS = StreamLimits(per_subject=16, per_tenant=64, per_process=256)


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
    channels = open_channels(settings)
    database = engine_for(settings.database_url, schema=SCHEMA.name)
    in_flight = InFlight()
    verifier = verifier_from(channels.authz, settings, log)
    view = RegistryToolView(channels.registry, clock, log)
    quarantine = QuarantineRefusingTools(view, channels.registry, log)
    hooks, heavy_work = read_hooks_file(settings.hooks), HeavyWork()
    storage = build_storage(settings, channels.audit, database, in_flight, log)
    runners = build_runners(
        settings,
        channels.registry,
        channels.authz,
        storage.trail,
        heavy_work,
        clock,
        log,
        builtin=builtin_runner(tools, log),
    )
    registrar = BuiltinRegistrar(
        channels.registry, [tool.manifest for tool in tools], log, after=runners.announcer.wait
    )
    ports = build_ports(
        settings, channels, verifier.view, view, quarantine, storage, runners, hooks, heavy_work, clock, log, tracing
    )
    pipeline = Pipeline(
        ports,
        in_flight=in_flight,
        audit_wait=settings.audit_wait_seconds,
        start_seconds=settings.sandbox_start_seconds,
    )
    cancel_what_ends(pipeline.supervisor, verifier.view, view, storage.claims, log)
    invoke = Invoke(pipeline)
    refused = RefusedCalls(invoke.record_not_started)
    limits = CallerLimits(CallerBounds(subject=settings.subject_calls, tenant=settings.tenant_calls))
    jobs = build_jobs(settings, database, pipeline, limits, refused, verifier, log)
    calls = build_handlers(pipeline, invoke, refused, storage.results, runners, limits, verifier.view)
    keys = KeyHandlers(ListKeys(storage.keys), SettleKey(storage.keys, quarantine, settings.redaction_rules, clock))
    return RpcApplication(
        settings,
        log,
        tracing,
        policy=POLICY,
        verifier=verifier,
        services=rpc_services(
            calls,
            jobs.handlers,
            keys,
            ToolLogHandlers(ListToolLogs(storage.tool_logs)),
            CircuitHandlers(ListCircuits(runners.circuits)),
        ),
        # Stopped in reverse order: the trail flushes before its channel and its database close.
        resources=[
            *(channel_resource(channel) for channel in channels),
            engine_resource(database, SCHEMA),
            *jobs.signals,
            *storage.resources,
            Resource(stop=refused.stop),
            *runners.resources,
            Resource(registrar.start, registrar.stop),
            Resource(view.start, view.stop),
            Resource(stop=quarantine.stop),
            Resource(stop=hooks.close),
            # Ready only once the registry can tell that its tools have a runner.
            Resource(runners.announcer.wait),
            *jobs.runner,
        ],
        ready_detail=runners.describe,
    )


class Channels(NamedTuple):
    """The channels to the other services."""

    authz: grpc.aio.Channel
    registry: grpc.aio.Channel
    audit: grpc.aio.Channel
    approval: grpc.aio.Channel


def open_channels(settings: Settings) -> Channels:
    """Open the channels."""
    return Channels(
        authz=authz_channel(settings.authz_address, settings, repeatable=["Check"]),
        registry=channel_to("registry", settings.registry_address, settings),
        audit=channel_to("audit", settings.audit_address, settings, for_callers=False),
        approval=ticket_channel(settings.approval_address, settings),
    )


def build_ports(
    settings: Settings,
    channels: Channels,
    revocations: RevocationView,
    view: RegistryToolView,
    quarantine: QuarantineRefusingTools,
    storage: Storage,
    runners: Runners,
    hooks: DeclaredHooks,
    heavy_work: HeavyWork,
    clock: Clock,
    log: Log,
    tracing: Tracing,
) -> Ports:
    """Build what the phases of a call use."""
    return Ports(
        tools=quarantine,
        authorizer=PolicyAuthorizer(channels.authz, clock, revocations),
        audit=storage.trail,
        runner=runners.dispatch,
        claims=storage.claims,
        commits=runners.commits,
        spending=storage.budget,
        previews=SealedPreviewTokens(settings.sealing_keys, clock),
        quarantine=quarantine,
        cache=build_cache(settings, view, clock),
        large_results=LargeResults(storage.results, settings.result_ttl_seconds, settings.result_max_bytes),
        slots=SlotPool(build_scheduler(settings, clock), clock),
        logs=storage.log_writer,
        hooks=hooks.open(clock, log, heavy_work),
        heavy_work=heavy_work,
        observer=Metrics(log, AbuseSignals(log, clock)),
        spans=SampledSpans(tracing),
        clock=clock,
        scanners=settings.redaction_rules,
        satisfies=ConstraintChecker(),
        approvals=TicketClient(channels.approval),
    )


def rpc_services(
    calls: ExecutorHandlers,
    invocations: InvocationHandlers,
    keys: KeyHandlers,
    logs: ToolLogHandlers,
    circuits: CircuitHandlers,
) -> list[Service]:
    """Return the gRPC services with their handlers."""
    package = "toolmesh.executor.v1."
    return [
        Service(package + "ExecutorService", lambda s: rpc.add_ExecutorServiceServicer_to_server(calls, s)),
        Service(
            package + "InvocationService",
            lambda s: invocation_rpc.add_InvocationServiceServicer_to_server(invocations, s),
        ),
        Service(package + "KeyService", lambda s: keys_rpc.add_KeyServiceServicer_to_server(keys, s)),
        Service(package + "ToolLogService", lambda s: logs_rpc.add_ToolLogServiceServicer_to_server(logs, s)),
        Service(package + "CircuitService", lambda s: circuits_rpc.add_CircuitServiceServicer_to_server(circuits, s)),
    ]


def build_handlers(
    pipeline: Pipeline,
    invoke: Invoke,
    refused: RefusedCalls,
    results: PostgresResultStore,
    runners: Runners,
    limits: CallerLimits,
    revocations: RevocationView,
) -> ExecutorHandlers:
    """Build the use cases of the RPCs of calls."""
    ports = pipeline.ports

    def is_revoked(caller: Caller) -> bool:
        return revocations.refuses(caller.token_lineage)

    group = InvokeGroup(invoke, ports.tools, ports.clock, ports.heavy_work, revoked=is_revoked)
    preview = PreviewInvocation(pipeline, ports.previews)
    pipeline.gate.preview = preview.execute
    calls = LimitedCalls(limits, invoke.execute, lambda request: [request], refused)
    return ExecutorHandlers(
        calls,
        LimitedCalls(limits, group.execute, lambda calls: [call.request for call in calls], refused),
        LimitedCalls(limits, preview.execute, lambda request: [request], refused),
        FetchResult(results),
        WatchResources(calls.execute, runners.watched, is_revoked, ports.clock),
        StreamSlots(WATCH_LIMITS),
    )


def cancel_what_ends(
    supervisor: Supervisor, revocations: RevocationView, view: RegistryToolView, claims: PostgresClaims, log: Log
) -> None:
    """Cancel running invocations when their token is revoked, their tool is withdrawn or their claim is lost."""
    revocations.listen(lambda: cancel_revoked(supervisor, revocations, log))
    view.listen_withdrawn(lambda error: cancel_withdrawn(supervisor, error, log))
    claims.listen(supervisor.active.cancel_lost_claim, lambda cause: log.error("claim leases not renewed", cause=cause))


def cancel_revoked(supervisor: Supervisor, view: RevocationView, log: Log) -> None:
    """Cancel the invocations whose tokens were revoked."""
    if canceled := supervisor.active.cancel_revoked(lambda caller: view.refuses(caller.token_lineage)):
        log.info("invocations canceled: their tokens were revoked", count=canceled)


def cancel_withdrawn(supervisor: Supervisor, error: ToolUnavailableError, log: Log) -> None:
    """Cancel the invocations of a version that was quarantined or removed."""
    if canceled := supervisor.active.cancel_withdrawn(error):
        log.info("invocations canceled: their tool was withdrawn", name=error.version.name, count=canceled)


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
