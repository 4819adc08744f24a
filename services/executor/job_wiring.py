"""Composes what jobs need: their store, their runner and the handlers of invocations by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.auth.tokens import TokenVerifier
from libs.common.ids import new_id
from libs.common.rpc.application import Resource
from libs.common.runtime.clock import Clock
from libs.common.runtime.process import instance_id
from libs.common.runtime.tasks import PeriodicTask
from libs.common.telemetry.log import Log
from services.executor.adapters.jobs.answer_schemas import compile_answer_schema
from services.executor.adapters.jobs.awaiting_jobs import PostgresAwaitingJobs
from services.executor.adapters.jobs.caller_sessions import TokenSessions
from services.executor.adapters.jobs.job_rows import JobRows
from services.executor.adapters.jobs.job_store import PostgresJobs
from services.executor.adapters.jobs.report_rows import ReportRows
from services.executor.adapters.jobs.report_store import PostgresReports
from services.executor.adapters.jobs.resumable_jobs import PostgresResumableJobs
from services.executor.adapters.jobs.signals import EVENTS, JOBS, RedisJobSignals
from services.executor.adapters.sweeper import sweeper
from services.executor.checkpoint_wiring import Callbacks, Checkpoints, build_callbacks, build_checkpoints
from services.executor.config import Settings
from services.executor.domain.callbacks.find_deliveries import FindDeliveries
from services.executor.domain.invoke.invoke import Invoke
from services.executor.domain.jobs.job import Job, JobBounds
from services.executor.domain.jobs.reports.job_channel import JobChannels
from services.executor.domain.jobs.reports.report_writer import ReportWriter
from services.executor.domain.jobs.requests.answer_question import AnswerQuestion
from services.executor.domain.jobs.requests.attached_streams import RENEW_SECONDS, AttachedStreams
from services.executor.domain.jobs.requests.cancel_invocation import CancelInvocation
from services.executor.domain.jobs.requests.find_checkpoints import FindCheckpoints
from services.executor.domain.jobs.requests.find_invocations import FindInvocations
from services.executor.domain.jobs.requests.resume_invocation import ResumeInvocation
from services.executor.domain.jobs.requests.start_invocation import StartInvocation, StartRequest
from services.executor.domain.jobs.requests.stream_invocation import StreamInvocation
from services.executor.domain.jobs.requests.watch_invocation import WatchInvocation
from services.executor.domain.jobs.requests.watched_jobs import WatchedJobs
from services.executor.domain.jobs.state_records import StateRecords
from services.executor.domain.jobs.worker.await_approvals import LOOK_SECONDS, AwaitApprovals
from services.executor.domain.jobs.worker.run_jobs import JobRunner
from services.executor.domain.phases.pipeline import Pipeline
from services.executor.domain.scheduling.caller_limits import CallerLimits, LimitedCalls
from services.executor.domain.scheduling.refused_calls import RefusedCalls
from services.executor.handlers.invocation import InvocationHandlers

LEASE_SECONDS = 10.0


@dataclass(frozen=True)
class Jobs:
    """The parts of jobs that the process starts and serves."""

    handlers: InvocationHandlers
    signals: Sequence[Resource]
    """Started before the server, stopped after it: the wakeups and what deletes expired rows."""
    runner: Sequence[Resource]


@dataclass(frozen=True)
class JobStorage:
    """The stores of jobs and of their reports, and the signals about their changes."""

    owner: str
    """The name that this process claims jobs under."""
    jobs: PostgresJobs
    reports: PostgresReports
    awaiting: PostgresAwaitingJobs
    resumable: PostgresResumableJobs
    signals: RedisJobSignals
    """Wakes the processes that run or cancel a job."""
    readers: RedisJobSignals
    """Wakes the processes that follow the events of a job."""


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
    storage = build_job_storage(settings, database, log)
    records = StateRecords(ports.audit, pipeline.audit_wait)
    writer = ReportWriter(storage.reports, storage.readers, ports.observer, ports.clock)
    checkpoints = build_checkpoints(settings, database, storage.owner, ports.heavy_work, ports.clock)
    callbacks = build_callbacks(settings, database, storage.signals, ports.observer)
    sessions = TokenSessions(verifier)
    approvals = AwaitApprovals(
        storage.awaiting,
        ports.approvals,
        sessions,
        storage.signals,
        storage.readers,
        ports.observer,
        ports.clock,
    )
    runner = JobRunner(
        Invoke(pipeline),
        storage.jobs,
        JobChannels(writer, storage.reports, storage.readers, records, ports.scanners, compile_answer_schema),
        sessions,
        storage.signals,
        ports.observer,
        ports.clock,
        checkpoints.open,
        approvals,
        max_running=settings.job_concurrency,
        lease_seconds=LEASE_SECONDS,
        cancel_seconds=settings.cancel_stop_seconds + settings.cancel_terminate_seconds,
    )
    admit = StartInvocation(pipeline, storage.jobs, storage.signals, records, callbacks.rules)
    start = LimitedCalls(limits, admit.execute, lambda asked: [asked.request], refused)
    attached = AttachedStreams(storage.reports, storage.signals)
    looking = PeriodicTask("awaited-tickets", approvals.look, log, interval=LOOK_SECONDS)
    renewal = PeriodicTask("attached-streams", attached.renew, log, interval=RENEW_SECONDS)
    return Jobs(
        build_invocation_handlers(storage, checkpoints, callbacks, limits, start, attached, ports.clock),
        [
            sweeper("jobs", storage.jobs.sweep, log),
            sweeper("checkpoints", checkpoints.durable.sweep, log),
            sweeper("callback_deliveries", callbacks.store.sweep, log),
            *(Resource(part.start, part.stop) for part in (storage.signals, storage.readers, renewal)),
        ],
        [
            checkpoints.resource,
            callbacks.resource,
            *(Resource(part.start, part.stop) for part in (writer, runner, looking)),
        ],
    )


def build_job_storage(settings: Settings, database: AsyncEngine, log: Log) -> JobStorage:
    """Build the stores of jobs."""
    executor_id, sealing = instance_id(settings), settings.sealing_keys
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
    return JobStorage(
        owner,
        jobs=PostgresJobs(rows, sealing, bounds),
        reports=PostgresReports(ReportRows(database, owner=owner), sealing),
        awaiting=PostgresAwaitingJobs(database, sealing, owner=owner),
        resumable=PostgresResumableJobs(database, sealing),
        signals=RedisJobSignals(settings.redis_url, JOBS, log),
        readers=RedisJobSignals(settings.redis_url, EVENTS, log),
    )


def build_invocation_handlers(
    storage: JobStorage,
    checkpoints: Checkpoints,
    callbacks: Callbacks,
    limits: CallerLimits,
    start: LimitedCalls[StartRequest, Job],
    attached: AttachedStreams,
    clock: Clock,
) -> InvocationHandlers:
    """Build the use cases of the RPCs of invocations."""
    reports, signals = storage.reports, storage.signals
    find, cancel = FindInvocations(storage.jobs, reports), CancelInvocation(storage.jobs, signals)
    watch = WatchInvocation(find, reports, WatchedJobs(reports, storage.readers), clock)
    answer = AnswerQuestion(find, reports, signals, compile_answer_schema)
    return InvocationHandlers(
        resume=ResumeInvocation(storage.resumable, checkpoints.stored, start.execute),
        checkpoints=FindCheckpoints(find, checkpoints.stored),
        deliveries=FindDeliveries(callbacks.store, signals.wake),
        limits=limits,
        start=start,
        find=find,
        cancel=cancel,
        watch=watch,
        stream=StreamInvocation(watch, answer, cancel, attached),
        answer=answer,
        clock=clock,
    )
