"""The composition root of the executor: the only file that names adapters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import grpc.aio
from sqlalchemy.ext.asyncio import AsyncEngine
from toolmesh.executor.v1 import executor_service_pb2_grpc as rpc

from libs.authz_client.jwks import authz_channel, verifier_from
from libs.common.auth.constraints import ConstraintChecker
from libs.common.auth.revocations import RevocationView
from libs.common.ids import new_id
from libs.common.rpc.application import Resource, RpcApplication, channel_resource, engine_resource
from libs.common.rpc.client import channel_to
from libs.common.rpc.server import Service
from libs.common.runtime.clock import Clock, SystemClock
from libs.common.runtime.process import instance_id
from libs.common.sql.engine import engine_for
from libs.common.sql.migrate import migrate
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from services.executor.adapters.audit.durable_trail import DurableTrail
from services.executor.adapters.audit.outbox import Outbox
from services.executor.adapters.audit.record_encoder import RecordWriter
from services.executor.adapters.audit.stream import AuditStream
from services.executor.adapters.authz.decision_client import PolicyAuthorizer
from services.executor.adapters.budget.lazy_budget import SpendingWhenNeeded
from services.executor.adapters.hooks.hooks_file import hooks_file
from services.executor.adapters.idempotency.claims import PostgresClaims
from services.executor.adapters.preview_tokens import SealedPreviewTokens
from services.executor.adapters.registry.quarantine import QuarantiningView
from services.executor.adapters.registry.register_builtins import Registrar
from services.executor.adapters.registry.tool_view import RegistryView
from services.executor.adapters.results.memory_cache import MemoryResultCache
from services.executor.adapters.results.postgres_store import PostgresResultStore
from services.executor.adapters.runners.builtin import BuiltinRunner
from services.executor.adapters.runners.dispatch import RunnersByKind
from services.executor.adapters.runners.factory import ConfinedRunners, Terms
from services.executor.adapters.runners.worker.pool import Limits
from services.executor.adapters.sandbox.bubblewrap.sandbox import Bubblewrap
from services.executor.adapters.sandbox.egress.proxy import EgressProxy
from services.executor.adapters.sandbox.gvisor.sandbox import Gvisor
from services.executor.adapters.sandbox.port import Sandbox
from services.executor.adapters.telemetry.metrics import Metrics
from services.executor.adapters.telemetry.queue_metrics import QueueMetrics, show_length
from services.executor.adapters.telemetry.spans import SampledSpans
from services.executor.builtin.arithmetic import Arithmetic
from services.executor.builtin.clock_now import ClockNow
from services.executor.builtin.echo import Echo
from services.executor.builtin.tool import BuiltinTool
from services.executor.config import Settings
from services.executor.domain.fetch_result import FetchResult
from services.executor.domain.invoke import Invoke
from services.executor.domain.invoke_group.invoke_group import InvokeGroup
from services.executor.domain.model import Caller
from services.executor.domain.phases.pipeline import Pipeline, Ports
from services.executor.domain.phases.supervise import InFlight, Supervisor
from services.executor.domain.ports import Runner
from services.executor.domain.preview.preview_invocation import PreviewInvocation
from services.executor.domain.results.store import LargeResults
from services.executor.domain.scheduling.scheduler import Bounds, Scheduler
from services.executor.domain.scheduling.slots import SlotPool
from services.executor.handlers import ExecutorHandlers
from services.executor.policy import POLICY

SERVICE = "toolmesh.executor.v1.ExecutorService"
SCHEMA = "executor"
MIGRATIONS = Path(__file__).parent / "migrations"
SWEEP_SECONDS = 300.0


async def build(settings: Settings, log: Log, tracing: Tracing) -> RpcApplication:
    """Compose the process. It is ready once it knows the registry's tools."""
    return compose(settings, log, tracing, clock=SystemClock(), tools=shipped(SystemClock()))


def shipped(clock: Clock) -> list[BuiltinTool]:
    """The tools that come with the executor."""
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
    """Compose the process with a clock, the tools that it brings, and what runs those."""
    authz, registry, audit = channels(settings)
    database = engine_for(settings.database_url, schema=SCHEMA)
    in_flight = InFlight()
    verifier = verifier_from(authz, settings, log)
    view = RegistryView(registry, clock, log)
    usable = QuarantiningView(view, registry, log)
    cache = cache_of(settings, view, clock)
    store = PostgresResultStore(database, settings.sealing_keys)
    hooks = hooks_file(settings.hooks)
    confined = confined_runners(settings, log)
    scheduler = scheduler_of(settings, clock)
    trail = durable_trail(settings, audit, database, log, in_flight)
    claims = claims_in(database, settings)
    spending = SpendingWhenNeeded(settings.redis_url)
    registrar = Registrar(registry, [tool.manifest for tool in tools], log)
    ports = Ports(
        tools=usable,
        authorizer=PolicyAuthorizer(authz, clock, verifier.view),
        audit=trail,
        runner=RunnersByKind({"builtin": builtin_runner(tools, log), **confined.by_kind}),
        claims=claims,
        spending=spending,
        previews=SealedPreviewTokens(settings.sealing_keys, clock),
        quarantine=usable,
        cache=cache,
        large_results=LargeResults(store, settings.result_ttl_seconds, settings.result_max_bytes),
        slots=SlotPool(scheduler, clock),
        hooks=hooks.open(clock, log),
        observer=Metrics(log),
        spans=SampledSpans(tracing),
        clock=clock,
        scanners=settings.redaction_rules,
        satisfies=ConstraintChecker(),
    )
    pipeline = Pipeline(ports, in_flight=in_flight, audit_wait=settings.audit_wait_seconds)
    verifier.view.listen(lambda: cancel_revoked(pipeline.supervisor, verifier.view, log))
    claims.listen(
        pipeline.supervisor.active.cancel_lost_claim, lambda cause: log.error("keys were not renewed", cause=cause)
    )
    handlers = handlers_of(pipeline, ports, store, revoked=lambda caller: verifier.view.refuses(caller.token_lineage))
    return RpcApplication(
        settings,
        log,
        tracing,
        policy=POLICY,
        verifier=verifier,
        services=[Service(SERVICE, lambda server: rpc.add_ExecutorServiceServicer_to_server(handlers, server))],
        # Released in reverse: the trail sends or keeps what is left before its channel and its database close.
        resources=[
            *(channel_resource(channel) for channel in (authz, registry, audit)),
            engine_resource(database, lambda: migrate(database, MIGRATIONS, schema=SCHEMA)),
            *keeping(claims, store, log),
            Resource(stop=spending.close),
            Resource(trail.start, trail.stop),
            Resource(registrar.start, registrar.stop),
            Resource(view.start, view.stop),
            Resource(stop=usable.stop),
            Resource(stop=hooks.close),
            Resource(confined.start, confined.stop),
        ],
    )


def handlers_of(
    pipeline: Pipeline, ports: Ports, store: PostgresResultStore, *, revoked: Callable[[Caller], bool]
) -> ExecutorHandlers:
    """Return the use cases behind the RPCs."""
    invoke = Invoke(pipeline)
    group = InvokeGroup(invoke, ports.tools, ports.clock, revoked=revoked)
    return ExecutorHandlers(invoke, group, PreviewInvocation(pipeline, ports.previews), FetchResult(store))


def keeping(claims: PostgresClaims, store: PostgresResultStore, log: Log) -> list[Resource]:
    """What looks after the tables: forgets what is over, and renews keys for as long as their calls are alive."""
    return [
        sweeping(claims, "idempotency keys", log),
        sweeping(store, "stored results", log),
        Resource(stop=claims.stop),
    ]


def cancel_revoked(supervisor: Supervisor, view: RevocationView, log: Log) -> None:
    """Cancel the invocations of revoked tokens."""
    if canceled := supervisor.active.cancel_revoked(lambda caller: view.refuses(caller.token_lineage)):
        log.info("invocations canceled, their tokens were revoked", count=canceled)


def channels(settings: Settings) -> tuple[grpc.aio.Channel, grpc.aio.Channel, grpc.aio.Channel]:
    """Open the channels to authz, registry and audit."""
    return (
        authz_channel(settings.authz_address, settings, repeatable=["Check"]),
        channel_to("registry", settings.registry_address, settings),
        channel_to("audit", settings.audit_address, settings, for_callers=False),
    )


def durable_trail(
    settings: Settings, channel: grpc.aio.Channel, database: AsyncEngine, log: Log, in_flight: InFlight
) -> DurableTrail:
    """The stream that all calls share, and the outbox behind it."""
    writer = RecordWriter(instance_id(settings), settings.redaction_rules)
    # A name for this one life: a successor under the same instance must wait for the lease like anybody else.
    owner = f"{instance_id(settings)}/{new_id()}"
    outbox = Outbox(database, writer, log, owner=owner, limit=settings.outbox_limit)
    stream = AuditStream(channel, writer, log, active=lambda: in_flight.count, settled=outbox.settled)
    outbox.attach(stream)
    return DurableTrail(stream, outbox, log)


def confined_runners(settings: Settings, log: Log) -> ConfinedRunners:
    """What runs tools that nobody has to trust."""
    instance, cgroups = instance_id(settings), settings.sandbox_cgroups
    sandboxes: dict[str, Sandbox] = {
        "process": Bubblewrap(instance, cgroups=cgroups),
        "kernel": Gvisor(instance, cgroups=cgroups, runsc=settings.runsc),
    }
    workers = Limits(
        most=settings.workers,
        most_per_tenant=settings.workers_per_tenant,
        idle_seconds=settings.worker_idle_seconds,
        calls=settings.worker_calls,
    )
    terms = Terms(settings.tool_packs, dict(settings.volumes), workers, settings.cold_starts, settings.result_max_bytes)
    return ConfinedRunners(sandboxes, terms, log, egress=lambda: EgressProxy(settings.egress_internal))


def claims_in(database: AsyncEngine, settings: Settings) -> PostgresClaims:
    """The memory of idempotency keys."""
    return PostgresClaims(database, instance_id(settings), settings.sealing_keys, lease=settings.claim_lease_seconds)


def cache_of(settings: Settings, view: RegistryView, clock: Clock) -> MemoryResultCache:
    """Results that may be used again, as long as nothing about their tool changes."""
    cache = MemoryResultCache(clock, max_bytes=settings.result_cache_bytes)
    view.listen(cache.forget)
    return cache


def scheduler_of(settings: Settings, clock: Clock) -> Scheduler:
    """What gives calls their turn, with somebody who counts those that wait."""
    bounds = Bounds(
        tool=settings.tool_concurrency,
        service=settings.service_concurrency,
        sandboxes=settings.sandbox_concurrency,
        waiting=settings.queue_limit,
        waiting_per_tool=settings.tool_queue_limit,
        aging=settings.queue_aging_seconds,
    )
    scheduler = Scheduler(clock, bounds, QueueMetrics())
    show_length(scheduler)
    return scheduler


class Swept(Protocol):
    """Where things end whose time is over."""

    async def sweep(self) -> int:
        """Forget some of them; return how many."""
        ...


def sweeping(swept: Swept, what: str, log: Log) -> Resource:
    """Forget what is over, every few minutes."""
    tasks: list[asyncio.Task[None]] = []

    async def sweep_forever() -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            try:
                while forgotten := await swept.sweep():
                    log.debug("forgotten", what=what, count=forgotten)
            except Exception as error:
                # Whatever it was, the next round comes: what is swept is over, and nobody waits for it.
                log.error("sweeping failed", what=what, cause=error)

    async def start() -> None:
        tasks.append(asyncio.create_task(sweep_forever(), name="sweep"))

    async def stop() -> None:
        for task in tasks:
            task.cancel()

    return Resource(start, stop)
