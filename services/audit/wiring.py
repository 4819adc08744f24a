"""Composition root: the only module that names concrete adapters."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy.ext.asyncio import AsyncEngine
from toolmesh.audit.v1 import audit_service_pb2_grpc as rpc
from toolmesh.audit.v1 import log_service_pb2_grpc as log_rpc
from toolmesh.audit.v1 import usage_service_pb2_grpc as usage_rpc

from libs.authz_client.jwks import authz_channel, verifier_from
from libs.common.rpc.application import Resource, RpcApplication, channel_resource, engine_resource
from libs.common.rpc.server import Service
from libs.common.rpc.stream_slots import StreamLimits, StreamSlots
from libs.common.runtime.clock import SystemClock
from libs.common.runtime.process import instance_id
from libs.common.sql.engine import engine_for
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from services.audit import metrics
from services.audit.adapters.evidence.anchor_folder import FolderAnchor
from services.audit.adapters.evidence.checkpoint_key import FileCheckpointKey
from services.audit.adapters.evidence.checkpoints import PostgresCheckpointStore
from services.audit.adapters.evidence.ed25519 import verify_signature
from services.audit.adapters.evidence.metrics import CheckpointMetrics
from services.audit.adapters.evidence.refuse_owner_role import refuse_owner
from services.audit.adapters.evidence.shards import PostgresShardStore
from services.audit.adapters.log.metered_writer import MeteredWriter
from services.audit.adapters.log.reader import PostgresReader
from services.audit.adapters.log.trees import PostgresTreeStore
from services.audit.adapters.log.writer import PostgresWriter
from services.audit.adapters.relay.lease import PostgresRelayLease
from services.audit.adapters.relay.metrics import RelayMetrics
from services.audit.adapters.usage.reader import PostgresUsageReader
from services.audit.adapters.usage.store import PostgresUsageStore
from services.audit.config import Settings, read_witness_keys
from services.audit.convert.index import decode_entry
from services.audit.convert.log import ProtoSelfRecorder
from services.audit.domain.evidence.checkpoints import CheckpointSigner
from services.audit.domain.evidence.cosignature import Witnesses
from services.audit.domain.evidence.issue_checkpoints import CheckpointInterval, CheckpointIssuer
from services.audit.domain.evidence.model import ShardLimits
from services.audit.domain.evidence.prove import Prover
from services.audit.domain.evidence.retention import Retention
from services.audit.domain.evidence.verify_range import VerifyRange
from services.audit.domain.export.export_records import ExportRecords
from services.audit.domain.log.append_buffer import AppendBufferReader
from services.audit.domain.log.append_records import AppendRecords
from services.audit.domain.log.shared_head import SharedHead
from services.audit.domain.log.tail import Tail
from services.audit.domain.log.watch_records import WatchRecords
from services.audit.domain.merkle.note import Origin
from services.audit.domain.ports import LogReader
from services.audit.domain.relay.ports import RelaySink
from services.audit.domain.relay.relay import Relay
from services.audit.domain.usage.count_records import CountRecords
from services.audit.handlers.audit import AuditHandlers
from services.audit.handlers.log import LogHandlers
from services.audit.handlers.usage import UsageHandlers
from services.audit.migrations import SCHEMA
from services.audit.open_streams import OpenStreams
from services.audit.policy import POLICY

# A shard is closed at this age, even if it is not full.
SHARD_SECONDS = 31 * 86_400.0


async def build(settings: Settings, log: Log, tracing: Tracing) -> RpcApplication:
    """Assemble the service. Nothing is connected yet."""
    engine = engine_for(settings.database_url, schema=SCHEMA.name)
    # Readers have a pool of their own: however many there are, the log's own work finds a connection.
    readers = engine_for(settings.database_url, schema=SCHEMA.name)
    authz = authz_channel(settings.authz_address, settings)
    reader, writer, tail = PostgresReader(readers), _writer(settings, log), Tail()
    slots = StreamSlots(_stream_limits(settings))
    issuer = _issuer(settings, engine, tail, log)
    evidence = _evidence(settings, engine, readers, writer, tail, issuer, slots)
    append, streams = AppendRecords(MeteredWriter(writer), tail), OpenStreams()
    export = ExportRecords(reader, evidence.shards, evidence.checkpoints, evidence.store, evidence.prover)
    watch = WatchRecords(reader, evidence.shards, tail, SharedHead(reader))
    handlers = AuditHandlers(reader, append, watch, evidence.checkpoints, streams, export, evidence.origin, slots)

    usage, counting = UsageHandlers(PostgresUsageReader(readers), SystemClock()), _counting(engine, tail, log)
    relay, relay_state = _relay(settings, log, AppendBufferReader(PostgresReader(engine), tail.buffer), tail)

    async def announce() -> None:
        log.info("log open", verifier_key=await evidence.checkpoints.verifier_key())

    return RpcApplication(
        settings,
        log,
        tracing,
        policy=POLICY,
        verifier=verifier_from(authz, settings, log),
        services=[
            Service("toolmesh.audit.v1.AuditService", lambda s: rpc.add_AuditServiceServicer_to_server(handlers, s)),
            Service("toolmesh.audit.v1.LogService", lambda s: log_rpc.add_LogServiceServicer_to_server(evidence, s)),
            Service("toolmesh.audit.v1.UsageService", lambda s: usage_rpc.add_UsageServiceServicer_to_server(usage, s)),
        ],
        resources=[
            engine_resource(engine, SCHEMA),
            Resource(start=lambda: refuse_owner(engine)),
            Resource(stop=readers.dispose),
            channel_resource(authz),
            Resource(writer.start, writer.stop),
            Resource(append.start, append.stop),
            Resource(issuer.start, issuer.stop),
            Resource(counting.start, counting.stop),
            relay,
            Resource(start=announce),
        ],
        before_drain=streams.close,
        ready_detail=relay_state,
    )


def _writer(settings: Settings, log: Log) -> PostgresWriter:
    return PostgresWriter(
        settings.database_url,
        log,
        recorder=ProtoSelfRecorder(SystemClock()),
        clock=SystemClock(),
        limits=ShardLimits(settings.shard_records, SHARD_SECONDS),
        origin=Origin(settings.trust_domain),
    )


def _stream_limits(settings: Settings) -> StreamLimits:
    return StreamLimits(settings.streams_per_subject, settings.streams_per_tenant, settings.streams_per_process)


def _signer(settings: Settings, engine: AsyncEngine) -> CheckpointSigner:
    key, origin = FileCheckpointKey(settings.checkpoint_key), Origin(settings.trust_domain)
    return CheckpointSigner(*_stores(engine), key, SystemClock(), origin)


def _issuer(settings: Settings, engine: AsyncEngine, tail: Tail, log: Log) -> CheckpointIssuer:
    """Return the background issuer of checkpoints."""
    interval = CheckpointInterval(settings.checkpoint_records, settings.checkpoint_seconds)
    anchor = FolderAnchor(settings.anchor_folder) if settings.anchor_folder else None
    shards = PostgresShardStore(engine)
    return CheckpointIssuer(_signer(settings, engine), shards, tail, CheckpointMetrics(log), interval, anchor)


def _evidence(
    settings: Settings,
    engine: AsyncEngine,
    readers: AsyncEngine,
    writer: PostgresWriter,
    tail: Tail,
    issuer: CheckpointIssuer,
    slots: StreamSlots,
) -> LogHandlers:
    """Return the handlers of LogService. Changes of the log use the pool of the service, reads that of the readers."""
    clock, origin, key = SystemClock(), Origin(settings.trust_domain), FileCheckpointKey(settings.checkpoint_key)
    reader, shards, trees, store = _stores(readers)
    own_reader, own_shards, _, _ = _stores(engine)
    known = read_witness_keys(settings.witness_keys) if settings.witness_keys else []
    years, recorder = settings.retention_years, ProtoSelfRecorder(clock)
    return LogHandlers(
        _signer(settings, readers),
        store,
        shards,
        Prover(reader, shards, trees),
        VerifyRange(reader, shards, trees, store, key, verify_signature, origin, decode_entry),
        Retention(own_reader, own_shards, writer, recorder, tail, issuer, retention_years=years),
        Witnesses(known, verify_signature),
        origin,
        slots,
        settings.relay,
    )


def _stores(
    engine: AsyncEngine,
) -> tuple[PostgresReader, PostgresShardStore, PostgresTreeStore, PostgresCheckpointStore]:
    return (
        PostgresReader(engine),
        PostgresShardStore(engine),
        PostgresTreeStore(engine),
        PostgresCheckpointStore(engine),
    )


def _counting(engine: AsyncEngine, tail: Tail, log: Log) -> CountRecords:
    def failed(error: Exception) -> None:
        metrics.usage_failures_total.inc()
        log.error("usage counting failed", cause=error)

    return CountRecords(PostgresUsageStore(engine, buffer=tail.buffer), failed=failed)


def _relay(settings: Settings, log: Log, reader: LogReader, tail: Tail) -> tuple[Resource, Callable[[], str]]:
    """Return the relay and the function that describes its state; both are empty without a sink."""
    sink = _sink(settings)
    if sink is None:
        return Resource(), str
    relay_metrics = RelayMetrics(log, sink.name)
    lease = PostgresRelayLease(settings.database_url, sink.name, holder=instance_id(settings))
    relay = Relay(reader, tail, lease, sink, relay_metrics, SystemClock(), trust_domain=settings.trust_domain)
    return Resource(relay.start, relay.stop), relay_metrics.describe


def _sink(settings: Settings) -> RelaySink | None:
    # Imported on demand: each sink needs a client library that the others do not.
    if settings.relay == "redis":
        from services.audit.adapters.relay.redis import RedisSink

        return RedisSink(settings.redis_url, length=settings.relay_stream_length)
    if settings.relay == "kafka":
        from services.audit.adapters.relay.kafka import KafkaSink, read_properties

        return KafkaSink(settings.kafka_brokers, settings.kafka_topic, read_properties(settings.kafka_config))
    return None
