"""Composes the stores of calls: the audit trail, idempotency claims, stored results, tool logs and budgets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import grpc.aio
from sqlalchemy.ext.asyncio import AsyncEngine

from libs.common.ids import new_id
from libs.common.rpc.application import Resource
from libs.common.runtime.process import instance_id
from libs.common.telemetry.log import Log
from services.executor.adapters.audit.durable_trail import DurableTrail
from services.executor.adapters.audit.outbox import Outbox
from services.executor.adapters.audit.record_encoder import RecordEncoder
from services.executor.adapters.audit.stream import AuditStream
from services.executor.adapters.budget.lazy_budget import LazyBudget
from services.executor.adapters.idempotency.claims import PostgresClaims
from services.executor.adapters.idempotency.key_administration import PostgresKeys
from services.executor.adapters.results.postgres_store import PostgresResultStore
from services.executor.adapters.sweeper import sweeper
from services.executor.adapters.tool_logs.postgres_logs import PostgresToolLogs
from services.executor.adapters.tool_logs.writer import ToolLogWriter
from services.executor.config import Settings
from services.executor.domain.phases.supervise import InFlight


@dataclass(frozen=True, slots=True)
class Storage:
    """The stores of calls, and what deletes their expired rows."""

    trail: DurableTrail
    claims: PostgresClaims
    keys: PostgresKeys
    results: PostgresResultStore
    tool_logs: PostgresToolLogs
    log_writer: ToolLogWriter
    budget: LazyBudget
    resources: Sequence[Resource]


def build_storage(
    settings: Settings, audit: grpc.aio.Channel, database: AsyncEngine, in_flight: InFlight, log: Log
) -> Storage:
    """Build the stores."""
    encoder, sealing = RecordEncoder(instance_id(settings), settings.redaction_rules), settings.sealing_keys
    trail = build_trail(settings, audit, database, log, in_flight, encoder)
    claims = PostgresClaims(
        database, instance_id(settings), sealing, encoder.encode, lease=settings.claim_lease_seconds
    )
    results = PostgresResultStore(database, sealing)
    tool_logs = PostgresToolLogs(
        database, sealing, seconds=settings.tool_log_seconds, tenant_bytes=settings.tool_log_tenant_bytes
    )
    writer, budget = ToolLogWriter(tool_logs.store, log), LazyBudget(settings.redis_url)
    return Storage(
        trail,
        claims,
        PostgresKeys(database, sealing, encoder.encode),
        results,
        tool_logs,
        writer,
        budget,
        [
            sweeper("claims", claims.sweep, log),
            sweeper("results", results.sweep, log),
            Resource(stop=claims.stop),
            sweeper("tool_logs", tool_logs.sweep, log),
            Resource(writer.start, writer.stop),
            Resource(stop=budget.close),
            Resource(trail.start, trail.stop),
        ],
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
