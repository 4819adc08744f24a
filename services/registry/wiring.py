"""The composition root: the only file that knows which adapter stands behind which port."""

from __future__ import annotations

from pathlib import Path

from toolmesh.registry.v1 import discovery_service_pb2_grpc as discovery_rpc
from toolmesh.registry.v1 import lifecycle_service_pb2_grpc as lifecycle_rpc
from toolmesh.registry.v1 import namespace_service_pb2_grpc as namespace_rpc
from toolmesh.registry.v1 import registry_service_pb2_grpc as rpc
from toolmesh.registry.v1 import trust_service_pb2_grpc as trust_rpc

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
from services.registry.adapters.catalogue import PostgresCatalogue
from services.registry.adapters.change_feed import POLL_SECONDS, PolledChangeFeed
from services.registry.adapters.change_log import PostgresChangeLog
from services.registry.adapters.histories import PostgresHistories
from services.registry.adapters.json_schemas import JsonSchemaChecker
from services.registry.adapters.language.process import LanguageProcess
from services.registry.adapters.redis_bell import RedisBell
from services.registry.adapters.sweeper import SWEEP_SECONDS, Sweeper, report
from services.registry.adapters.tool_directory import ToolDirectory
from services.registry.adapters.trust_book import PostgresTrustBook
from services.registry.adapters.trust_scores import CachedTrustScores
from services.registry.adapters.usage_reader import AuditUsage, UnknownUsage
from services.registry.adapters.vector_writer import SETTLE_SECONDS, VectorWriter
from services.registry.adapters.vectors import PostgresVectors
from services.registry.answers import Answers, ForgetfulBell
from services.registry.config import Settings
from services.registry.domain.discovery.text import RECIPE
from services.registry.domain.sweep_lifecycle import sweep_lifecycle
from services.registry.domain.trust.keep_scores import sweep_scores
from services.registry.domain.trust.work_out import Scales
from services.registry.handlers.discovery import DiscoveryHandlers
from services.registry.handlers.lifecycle import LifecycleHandlers
from services.registry.handlers.namespace import NamespaceHandlers
from services.registry.handlers.registry import RegistryHandlers
from services.registry.handlers.trust import TrustHandlers
from services.registry.policy import POLICY

SCHEMA = "registry"
MIGRATIONS = Path(__file__).parent / "migrations"


class RegistryApplication(RpcApplication):
    """A gRPC process that also says whether its bell has been heard of by the bus."""

    bell: RedisBell
    sweeper: Sweeper
    language: LanguageProcess


async def build(
    settings: Settings,
    log: Log,
    tracing: Tracing,
    *,
    poll_seconds: float = POLL_SECONDS,
    sweep_seconds: float = SWEEP_SECONDS,
    settle_seconds: float = SETTLE_SECONDS,
) -> RegistryApplication:
    """Put the registry together. Shorter `poll_seconds`, `sweep_seconds` and `settle_seconds` are for tests."""
    engine = engine_for(settings.database_url, schema=SCHEMA, size=8)
    authz = channel_to(
        "authz", settings.authz_address, settings, service="toolmesh.authz.v1.AuthzService", retry=["GetJwks"]
    )
    changes = PostgresChangeLog(engine)
    feed = PolledChangeFeed(changes, log, interval=poll_seconds)
    clock, histories = SystemClock(), PostgresHistories(engine)
    answers, bus = Answers(feed, clock), RedisBell(settings.redis_url, feed.wake, log)
    bell = ForgetfulBell(bus, answers)
    audit = channel_to("audit", settings.audit_address, settings) if settings.audit_address else None
    usage = AuditUsage(audit) if audit else UnknownUsage()
    catalogue = PostgresCatalogue(engine)
    scales = Scales(catalogue, PostgresTrustBook(engine), usage, clock)
    trust_scores = CachedTrustScores(engine, log)

    async def ending() -> None:
        force = settings.removal_policy == "force"
        swept = await sweep_lifecycle(
            histories=histories, catalogue=catalogue, usage=usage, bell=bell, clock=clock, force=force
        )
        report(swept, log)

    sweeper = Sweeper(
        engine,
        log,
        {
            "lifecycle": ending,
            "trust": lambda: sweep_scores(scales),
        },
        interval=sweep_seconds,
    )
    lifecycle = LifecycleHandlers(
        catalogue=catalogue, histories=histories, usage=usage, bell=bell, clock=clock, journal=log
    )
    namespaces = NamespaceHandlers(catalogue=catalogue, histories=histories, bell=bell, clock=clock, journal=log)
    trust = TrustHandlers(scales=scales, histories=histories, bell=bell, journal=log)
    language = LanguageProcess(log)
    vectors = PostgresVectors(engine, f"{language.model}/{RECIPE}")
    writer = VectorWriter(
        log=changes, feed=feed, vectors=vectors, language=language, journal=log, settle=settle_seconds
    )
    directory = ToolDirectory(
        catalogue=catalogue, log=changes, feed=feed, vectors=vectors, trust=trust_scores, clock=clock, journal=log
    )
    discovery = DiscoveryHandlers(directory=directory, language=language, catalogue=catalogue, clock=clock)
    handlers = RegistryHandlers(
        catalogue=catalogue,
        answers=answers,
        log=changes,
        feed=feed,
        schemas=JsonSchemaChecker(),
        bell=bell,
        clock=clock,
        journal=log,
        scan_policy=settings.scan_policy,
    )
    application = RegistryApplication(
        settings,
        log,
        tracing,
        policy=POLICY,
        verifier=TokenVerifier(jwks_from(authz), issuer=settings.issuer, audience=settings.audience),
        services=[
            Service(
                "toolmesh.registry.v1.RegistryService", lambda s: rpc.add_RegistryServiceServicer_to_server(handlers, s)
            ),
            Service(
                "toolmesh.registry.v1.LifecycleService",
                lambda s: lifecycle_rpc.add_LifecycleServiceServicer_to_server(lifecycle, s),
            ),
            Service(
                "toolmesh.registry.v1.NamespaceService",
                lambda s: namespace_rpc.add_NamespaceServiceServicer_to_server(namespaces, s),
            ),
            Service(
                "toolmesh.registry.v1.DiscoveryService",
                lambda s: discovery_rpc.add_DiscoveryServiceServicer_to_server(discovery, s),
            ),
            Service(
                "toolmesh.registry.v1.TrustService", lambda s: trust_rpc.add_TrustServiceServicer_to_server(trust, s)
            ),
        ],
        resources=[
            channel_resource(authz),
            *([channel_resource(audit)] if audit else []),
            engine_resource(engine, lambda: migrate(engine, MIGRATIONS, schema=SCHEMA)),
            Resource(feed.start, feed.stop),
            Resource(bus.start, bus.stop),
            Resource(trust_scores.start, trust_scores.stop),
            Resource(sweeper.start, sweeper.stop),
            Resource(stop=language.stop),
            Resource(directory.start, directory.stop),
            Resource(writer.start, writer.stop),
        ],
        before_drain=feed.end,
    )
    application.bell, application.sweeper, application.language = bus, sweeper, language
    return application
