"""The composition root: the only file that names concrete adapters."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import NamedTuple

from sqlalchemy.ext.asyncio import AsyncEngine
from toolmesh.registry.v1 import discovery_service_pb2_grpc as discovery_rpc
from toolmesh.registry.v1 import lifecycle_service_pb2_grpc as lifecycle_rpc
from toolmesh.registry.v1 import namespace_service_pb2_grpc as namespace_rpc
from toolmesh.registry.v1 import registry_service_pb2_grpc as rpc
from toolmesh.registry.v1 import runner_service_pb2_grpc as runner_rpc
from toolmesh.registry.v1 import trust_service_pb2_grpc as trust_rpc
from toolmesh.registry.v1 import upstream_service_pb2_grpc as upstream_rpc

from libs.audit_client.act import ActEncoder
from libs.audit_client.outbox import ActDelivery, ActRecorder
from libs.authz_client.jwks import authz_channel, verifier_from
from libs.common.redis_wakeup import RedisWakeup
from libs.common.rpc.application import Resource, RpcApplication, channel_resource, engine_resource
from libs.common.rpc.client import channel_to
from libs.common.rpc.server import Service
from libs.common.rpc.stream_slots import StreamLimits, StreamSlots
from libs.common.runtime.clock import Clock, SystemClock
from libs.common.sql.engine import engine_for
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from services.registry.adapters.call_policy import AuthzCallPolicy
from services.registry.adapters.health.followed_health import FollowedHealth
from services.registry.adapters.json_schemas import JsonSchemaChecker
from services.registry.adapters.language.process import LanguageProcess
from services.registry.adapters.language.vocabularies import word_ranks
from services.registry.adapters.postgres.announcements import PostgresAnnouncements
from services.registry.adapters.postgres.catalogue import PostgresCatalogue
from services.registry.adapters.postgres.change_feed import POLL_SECONDS, PolledChangeFeed
from services.registry.adapters.postgres.change_log import PostgresChangeLog
from services.registry.adapters.postgres.histories import PostgresHistories
from services.registry.adapters.postgres.upstreams import PostgresUpstreams
from services.registry.adapters.search.tool_directory import ToolDirectory
from services.registry.adapters.search.vector_writer import SETTLE_SECONDS, VectorWriter
from services.registry.adapters.search.vectors import PostgresVectors
from services.registry.adapters.sweeper import SWEEP_SECONDS, Sweeper, Task, log_report
from services.registry.adapters.trust.facts_store import PostgresTrustStore
from services.registry.adapters.trust.scores import CachedTrustScores
from services.registry.adapters.trust.usage_reader import AuditUsageReader, UnavailableUsageReader
from services.registry.config import Settings
from services.registry.domain.discovery.spelling import Spelling
from services.registry.domain.discovery.text import EMBEDDING_TEXT_VERSION
from services.registry.domain.lifecycle.sweep_lifecycle import SweepReport, sweep_lifecycle
from services.registry.domain.trust.compute_score import TrustScorer
from services.registry.domain.trust.rescore import sweep_scores
from services.registry.domain.upstreams.publishing import Publisher
from services.registry.handlers.discovery import DiscoveryHandlers
from services.registry.handlers.lifecycle import LifecycleHandlers
from services.registry.handlers.namespace import NamespaceHandlers
from services.registry.handlers.registry import RegistryHandlers
from services.registry.handlers.response_cache import CacheClearingWakeup, ResponseCache
from services.registry.handlers.runners import RunnerHandlers
from services.registry.handlers.trust import TrustHandlers
from services.registry.handlers.upstreams import UpstreamHandlers
from services.registry.migrations import SCHEMA
from services.registry.policy import POLICY
from services.registry.public_services import PUBLIC_SERVICES

WAKEUP_CHANNEL = "toolmesh:registry:changes"
# Watches of callers, each of which asks policy about the whole catalogue again and again.
_WATCH_LIMITS = StreamLimits(per_subject=4, per_tenant=16)


class RegistryApplication(RpcApplication):
    """The registry process, with access to its wakeup, sweeper and language process."""

    wakeup: RedisWakeup
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
    """Build the registry. Shorter `poll_seconds`, `sweep_seconds` and `settle_seconds` are for tests."""
    engine = engine_for(settings.database_url, schema=SCHEMA.name, size=8)
    authz = authz_channel(settings.authz_address, settings, repeatable=["FilterTools"])
    audit = channel_to("audit", settings.audit_address, settings) if settings.audit_address else None
    usage = AuditUsageReader(audit) if audit else UnavailableUsageReader()
    clock, histories = SystemClock(), PostgresHistories(engine)
    changes = _changes(settings, engine, clock, log, poll=poll_seconds)

    def reassess() -> None:
        changes.cache.clear()
        health.reassess()

    announcements = PostgresAnnouncements(engine, log, reassess)
    acts = ActRecorder(ActEncoder(SCHEMA.name))
    catalogue = PostgresCatalogue(engine, acts)
    scorer = TrustScorer(catalogue, PostgresTrustStore(engine, acts), usage, clock)
    trust_scores, wakeup = CachedTrustScores(engine, log, on_change=changes.cache.clear), changes.wakeup
    health = FollowedHealth(
        engine, changes.log, changes.feed, trust_scores, announcements, log, on_change=changes.cache.clear
    )
    policy = AuthzCallPolicy(authz, catalogue, trust_scores, health, clock)
    sweep = partial(sweep_lifecycle, histories=histories, catalogue=catalogue, usage=usage, wakeup=wakeup, clock=clock)
    due = partial(sweep, force=settings.removal_policy == "force")
    tasks: dict[str, Task] = {"lifecycle": lambda: _sweep_and_log(due(), log), "trust": lambda: sweep_scores(scorer)}
    sweeper = Sweeper(engine, log, tasks, interval=sweep_seconds)
    discovery = _discovery(
        engine, catalogue, policy, changes, trust_scores, health, announcements, clock, log, settle=settle_seconds
    )
    upstreams = _upstreams(settings, PostgresUpstreams(engine, acts), catalogue, announcements, wakeup, clock, log)

    def end_watches() -> None:
        changes.feed.end()
        upstreams.end_watches()

    application = RegistryApplication(
        settings,
        log,
        tracing,
        policy=POLICY,
        verifier=verifier_from(authz, settings, log),
        services=_services(
            _catalog(settings, catalogue, changes, policy, trust_scores, health, announcements, clock, log),
            LifecycleHandlers(
                catalogue=catalogue, histories=histories, usage=usage, wakeup=wakeup, clock=clock, journal=log
            ),
            NamespaceHandlers(catalogue=catalogue, histories=histories, wakeup=wakeup, clock=clock, journal=log),
            discovery.handlers,
            TrustHandlers(scorer=scorer, histories=histories, wakeup=wakeup, journal=log),
            RunnerHandlers(announcements),
            upstreams,
        ),
        public_services=PUBLIC_SERVICES,
        resources=[
            channel_resource(authz),
            *([channel_resource(audit)] if audit else []),
            engine_resource(engine, SCHEMA),
            *changes.resources,
            *(Resource(part.start, part.stop) for part in (trust_scores, announcements, health, sweeper)),
            *discovery.resources,
            *_act_delivery(settings, engine, acts, log),
        ],
        before_drain=end_watches,
    )
    application.wakeup, application.sweeper, application.language = changes.bus, sweeper, discovery.language
    return application


class _Changes(NamedTuple):
    """The changes of the catalogue: their log, the feed of them, and what they invalidate and wake."""

    log: PostgresChangeLog
    feed: PolledChangeFeed
    cache: ResponseCache
    bus: RedisWakeup
    wakeup: CacheClearingWakeup

    @property
    def resources(self) -> list[Resource]:
        return [Resource(self.feed.start, self.feed.stop), Resource(self.bus.start, self.bus.stop)]


def _changes(settings: Settings, engine: AsyncEngine, clock: Clock, log: Log, *, poll: float) -> _Changes:
    changes = PostgresChangeLog(engine)
    feed = PolledChangeFeed(changes, log, interval=poll)
    cache, bus = ResponseCache(feed, clock), RedisWakeup(settings.redis_url, WAKEUP_CHANNEL, feed.wake, log)
    return _Changes(changes, feed, cache, bus, CacheClearingWakeup(bus, cache))


def _catalog(
    settings: Settings,
    catalogue: PostgresCatalogue,
    changes: _Changes,
    policy: AuthzCallPolicy,
    trust: CachedTrustScores,
    health: FollowedHealth,
    runners: PostgresAnnouncements,
    clock: Clock,
    log: Log,
) -> RegistryHandlers:
    return RegistryHandlers(
        catalogue=catalogue,
        cache=changes.cache,
        log=changes.log,
        feed=changes.feed,
        schemas=JsonSchemaChecker(),
        policy=policy,
        runners=runners,
        trust=trust,
        health=health,
        wakeup=changes.wakeup,
        clock=clock,
        journal=log,
        slots=StreamSlots(_WATCH_LIMITS),
        scan_policy=settings.scan_policy,
    )


def _upstreams(
    settings: Settings,
    upstreams: PostgresUpstreams,
    catalogue: PostgresCatalogue,
    runners: PostgresAnnouncements,
    wakeup: CacheClearingWakeup,
    clock: Clock,
    log: Log,
) -> UpstreamHandlers:
    publisher = Publisher(catalogue, JsonSchemaChecker(), runners, wakeup, clock, scan_policy=settings.scan_policy)
    return UpstreamHandlers(upstreams=upstreams, publisher=publisher, clock=clock, journal=log)


def _act_delivery(settings: Settings, engine: AsyncEngine, acts: ActRecorder, log: Log) -> list[Resource]:
    """Return the resources that deliver acts to the audit log; without its address, acts wait in the database."""
    if settings.audit_address is None:
        log.warning("acts are not delivered: no audit address")
        return []
    channel = channel_to("audit", settings.audit_address, settings, for_callers=False)
    delivery = ActDelivery(engine, acts, channel, log)
    return [channel_resource(channel), Resource(delivery.start, delivery.stop)]


async def _sweep_and_log(sweeping: Awaitable[SweepReport], log: Log) -> None:
    log_report(await sweeping, log)


class _Discovery(NamedTuple):
    """The discovery handlers, their resources and the language process."""

    handlers: DiscoveryHandlers
    resources: list[Resource]
    language: LanguageProcess


def _discovery(
    engine: AsyncEngine,
    catalogue: PostgresCatalogue,
    policy: AuthzCallPolicy,
    changes: _Changes,
    trust: CachedTrustScores,
    health: FollowedHealth,
    runners: PostgresAnnouncements,
    clock: Clock,
    log: Log,
    *,
    settle: float,
) -> _Discovery:
    language = LanguageProcess(log)
    vectors = PostgresVectors(engine, f"{language.model}/{EMBEDDING_TEXT_VERSION}")
    writer = VectorWriter(
        log=changes.log, feed=changes.feed, vectors=vectors, language=language, journal=log, settle=settle
    )
    directory = ToolDirectory(
        catalogue=catalogue,
        log=changes.log,
        feed=changes.feed,
        vectors=vectors,
        trust=trust,
        health=health,
        clock=clock,
        journal=log,
    )
    return _Discovery(
        DiscoveryHandlers(
            directory=directory,
            language=language,
            spelling=Spelling(word_ranks(), directory.has_word),
            catalogue=catalogue,
            policy=policy,
            runners=runners,
            trust=trust,
            clock=clock,
        ),
        [
            Resource(stop=language.stop),
            Resource(directory.start, directory.stop),
            Resource(writer.start, writer.stop),
        ],
        language,
    )


def _services(
    registry: RegistryHandlers,
    lifecycle: LifecycleHandlers,
    namespaces: NamespaceHandlers,
    discovery: DiscoveryHandlers,
    trust: TrustHandlers,
    runners: RunnerHandlers,
    upstreams: UpstreamHandlers,
) -> list[Service]:
    """Return the gRPC services with their handlers."""
    package = "toolmesh.registry.v1."
    return [
        Service(package + "RegistryService", lambda s: rpc.add_RegistryServiceServicer_to_server(registry, s)),
        Service(
            package + "LifecycleService", lambda s: lifecycle_rpc.add_LifecycleServiceServicer_to_server(lifecycle, s)
        ),
        Service(
            package + "NamespaceService", lambda s: namespace_rpc.add_NamespaceServiceServicer_to_server(namespaces, s)
        ),
        Service(
            package + "DiscoveryService", lambda s: discovery_rpc.add_DiscoveryServiceServicer_to_server(discovery, s)
        ),
        Service(package + "TrustService", lambda s: trust_rpc.add_TrustServiceServicer_to_server(trust, s)),
        Service(package + "RunnerService", lambda s: runner_rpc.add_RunnerServiceServicer_to_server(runners, s)),
        Service(
            package + "UpstreamService", lambda s: upstream_rpc.add_UpstreamServiceServicer_to_server(upstreams, s)
        ),
    ]
