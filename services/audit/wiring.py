"""The composition root: the only file that names what stands behind the ports."""

from __future__ import annotations

from pathlib import Path

from toolmesh.audit.v1 import audit_service_pb2_grpc as rpc

from libs.common.auth.jwks import jwks_from
from libs.common.auth.tokens import TokenVerifier
from libs.common.clock import SystemClock
from libs.common.rpc.application import Resource, RpcApplication, channel_resource, engine_resource
from libs.common.rpc.client import channel_to
from libs.common.rpc.server import Service
from libs.common.sql.engine import engine_for
from libs.common.sql.migrate import migrate
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from services.audit.adapters.checkpoint_key import FileCheckpointKey
from services.audit.adapters.metered import MeteredWriter
from services.audit.adapters.reader import PostgresReader
from services.audit.adapters.writer import PostgresWriter
from services.audit.config import Settings
from services.audit.domain.append_records import AppendRecords
from services.audit.domain.get_checkpoint import GetCheckpoint
from services.audit.domain.tail import Tail
from services.audit.domain.watch_records import WatchRecords
from services.audit.handlers.audit import AuditHandlers
from services.audit.policy import POLICY
from services.audit.streams import OpenStreams

SCHEMA = "audit"
MIGRATIONS = Path(__file__).parent / "migrations"


async def build(settings: Settings, log: Log, tracing: Tracing) -> RpcApplication:
    """Put the service together. Nothing is connected yet."""
    engine = engine_for(settings.database_url, schema=SCHEMA)
    authz = channel_to(
        "authz", settings.authz_address, settings, service="toolmesh.authz.v1.AuthzService", retry=["GetJwks"]
    )
    reader, writer, tail = PostgresReader(engine), PostgresWriter(settings.database_url, log), Tail()
    key = FileCheckpointKey(settings.checkpoint_key)
    checkpoint = GetCheckpoint(reader, key, SystemClock(), trust_domain=settings.trust_domain)
    append, streams = AppendRecords(MeteredWriter(writer), tail), OpenStreams()
    handlers = AuditHandlers(reader, append, WatchRecords(reader, tail), checkpoint, streams)

    async def announce() -> None:
        log.info("log open", verifier_key=await checkpoint.verifier_key())

    return RpcApplication(
        settings,
        log,
        tracing,
        policy=POLICY,
        verifier=TokenVerifier(jwks_from(authz), issuer=settings.issuer, audience=settings.audience),
        services=[
            Service("toolmesh.audit.v1.AuditService", lambda s: rpc.add_AuditServiceServicer_to_server(handlers, s))
        ],
        resources=[
            engine_resource(engine, lambda: migrate(engine, MIGRATIONS, schema=SCHEMA)),
            channel_resource(authz),
            Resource(writer.start, writer.stop),
            Resource(append.start, append.stop),
            Resource(start=announce),
        ],
        before_drain=streams.close,
    )
