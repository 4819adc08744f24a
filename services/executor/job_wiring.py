"""Composes what jobs need: their store, their runner and the handlers of invocations by name."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.auth.tokens import TokenVerifier
from libs.common.ids import new_id
from libs.common.rpc.application import Resource
from libs.common.runtime.process import instance_id
from libs.common.telemetry.log import Log
from services.executor.adapters.jobs.caller_sessions import TokenSessions
from services.executor.adapters.jobs.job_rows import JobRows
from services.executor.adapters.jobs.job_store import PostgresJobs
from services.executor.adapters.jobs.signals import RedisJobSignals
from services.executor.config import Settings
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
    runner = JobRunner(
        Invoke(pipeline),
        store,
        TokenSessions(verifier),
        signals,
        ports.observer,
        ports.clock,
        max_running=settings.job_concurrency,
        lease_seconds=LEASE_SECONDS,
    )
    handlers = InvocationHandlers(
        limits,
        LimitedCalls(limits, StartInvocation(pipeline, store, signals).execute, lambda asked: [asked.request], refused),
        FindInvocations(store),
        CancelInvocation(store, signals),
        WatchInvocation(store, WatchedJobs(store, signals), ports.clock),
    )
    return Jobs(store, handlers, Resource(signals.start, signals.stop), Resource(runner.start, runner.stop))
