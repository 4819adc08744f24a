"""Composes what jobs need: their store, their runner and the handlers of invocations by name."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.auth.tokens import TokenVerifier
from libs.common.ids import new_id
from libs.common.rpc.application import Resource
from libs.common.runtime.process import instance_id
from libs.common.telemetry.log import Log
from libs.common.webhooks.destination import WebhookDestinations
from libs.common.webhooks.sender import WebhookSender
from services.executor.adapters.callbacks.postgres_deliveries import PostgresDeliveries
from services.executor.adapters.checkpoints.postgres_checkpoints import PostgresCheckpoints
from services.executor.adapters.checkpoints.valkey_checkpoints import ValkeyCheckpoints
from services.executor.adapters.jobs.caller_sessions import TokenSessions
from services.executor.adapters.jobs.job_rows import JobRows
from services.executor.adapters.jobs.job_store import PostgresJobs
from services.executor.adapters.jobs.resumable_jobs import PostgresResumableJobs
from services.executor.adapters.jobs.signals import RedisJobSignals
from services.executor.config import Settings
from services.executor.domain.callbacks.callback_rules import CallbackRules
from services.executor.domain.callbacks.deliver_callbacks import CallbackDeliveries
from services.executor.domain.callbacks.find_deliveries import FindDeliveries
from services.executor.domain.checkpoints.checkpoint import CheckpointBounds
from services.executor.domain.checkpoints.find_checkpoints import FindCheckpoints
from services.executor.domain.checkpoints.resume_invocation import ResumeInvocation
from services.executor.domain.checkpoints.run_checkpoints import RunCheckpoints
from services.executor.domain.checkpoints.stored_checkpoints import StoredCheckpoints
from services.executor.domain.invoke import Invoke
from services.executor.domain.jobs.cancel_invocation import CancelInvocation
from services.executor.domain.jobs.find_invocations import FindInvocations
from services.executor.domain.jobs.job import JobBounds
from services.executor.domain.jobs.run_jobs import JobRunner
from services.executor.domain.jobs.start_invocation import StartInvocation
from services.executor.domain.jobs.watch_invocation import WatchInvocation
from services.executor.domain.jobs.watched_jobs import WatchedJobs
from services.executor.domain.phases.pipeline import Pipeline
from services.executor.domain.scheduling.caller_limits import CallerLimits, LimitedCalls
from services.executor.domain.scheduling.refused_calls import RefusedCalls
from services.executor.handlers.invocation import InvocationHandlers

LEASE_SECONDS = 10.0


@dataclass(frozen=True)
class Jobs:
    """The parts of jobs that the process starts and serves."""

    store: PostgresJobs
    handlers: InvocationHandlers
    signals: Resource
    runner: Resource
    checkpoints: PostgresCheckpoints
    deliveries: PostgresDeliveries


def build_jobs(
    settings: Settings,
    database: AsyncEngine,
    pipeline: Pipeline,
    limits: CallerLimits,
    refused: RefusedCalls,
    verifier: TokenVerifier,
    log: Log,
) -> Jobs:
    """Build the parts of jobs."""
    ports = pipeline.ports
    executor_id = instance_id(settings)
    # Unique per process: a restarted process with the same instance id must not renew the claims of its predecessor.
    owner = f"{executor_id}/{new_id()}"
    rows = JobRows(
        database, owner=owner, executor_id=executor_id, lease=LEASE_SECONDS, keep=settings.job_retention_seconds
    )
    bounds = JobBounds(
        waiting=settings.job_queue_limit,
        waiting_per_tenant=max(1, settings.job_queue_limit // 4),
        per_tenant=settings.job_tenant_concurrency,
        per_tool=settings.job_tool_concurrency,
    )
    store = PostgresJobs(rows, settings.sealing_keys, bounds)
    signals = RedisJobSignals(settings.redis_url, log)
    checkpoint_bounds = CheckpointBounds(
        state_bytes=settings.checkpoint_state_bytes, tenant_bytes=settings.checkpoint_tenant_bytes
    )
    durable = PostgresCheckpoints(database, settings.sealing_keys, checkpoint_bounds, owner=owner)
    micro = ValkeyCheckpoints(
        settings.redis_url, settings.sealing_keys, tenant_bytes=settings.checkpoint_tenant_bytes // 4
    )
    stored = StoredCheckpoints(micro, durable, ports.heavy_work)
    deliveries = PostgresDeliveries(database, settings.sealing_keys)
    destinations = WebhookDestinations(settings.callback_internal_hosts)
    sender = WebhookSender(destinations)
    callbacks = CallbackDeliveries(deliveries, sender.send, signals, ports.observer)
    runner = JobRunner(
        Invoke(pipeline),
        store,
        TokenSessions(verifier),
        signals,
        ports.observer,
        ports.clock,
        lambda job: RunCheckpoints(job, stored, durable, checkpoint_bounds, ports.clock),
        max_running=settings.job_concurrency,
        lease_seconds=LEASE_SECONDS,
    )
    start = LimitedCalls(
        limits, StartInvocation(pipeline, store, signals).execute, lambda asked: [asked.request], refused
    )
    find = FindInvocations(store)
    handlers = InvocationHandlers(
        resume=ResumeInvocation(PostgresResumableJobs(database, settings.sealing_keys), stored, start.execute),
        checkpoints=FindCheckpoints(find, stored),
        rules=CallbackRules(destinations),
        deliveries=FindDeliveries(deliveries, signals.wake),
        limits=limits,
        start=start,
        find=find,
        cancel=CancelInvocation(store, signals),
        watch=WatchInvocation(store, WatchedJobs(store, signals), ports.clock),
    )

    async def start_runner() -> None:
        await callbacks.start()
        await runner.start()

    async def stop_runner() -> None:
        await runner.stop()
        await callbacks.stop()
        await sender.close()
        await micro.close()

    return Jobs(
        store=store,
        handlers=handlers,
        signals=Resource(signals.start, signals.stop),
        runner=Resource(start_runner, stop_runner),
        checkpoints=durable,
        deliveries=deliveries,
    )
