"""The composition root: the only file that knows which adapter stands behind which port."""

from __future__ import annotations

from pathlib import Path

from toolmesh.registry.v1 import registry_service_pb2_grpc as rpc

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
from services.registry.adapters.json_schemas import JsonSchemaChecker
from services.registry.adapters.redis_bell import RedisBell
from services.registry.config import Settings
from services.registry.handlers.registry import RegistryHandlers
from services.registry.policy import POLICY

SCHEMA = "registry"
MIGRATIONS = Path(__file__).parent / "migrations"


class RegistryApplication(RpcApplication):
    """A gRPC process that also says whether its bell has been heard of by the bus."""

    bell: RedisBell


async def build(
    settings: Settings, log: Log, tracing: Tracing, *, poll_seconds: float = POLL_SECONDS
) -> RegistryApplication:
    """Put the registry together. A shorter `poll_seconds` is for tests."""
    engine = engine_for(settings.database_url, schema=SCHEMA, size=8)
    authz = channel_to(
        "authz", settings.authz_address, settings, service="toolmesh.authz.v1.AuthzService", retry=["GetJwks"]
    )
    changes = PostgresChangeLog(engine)
    feed = PolledChangeFeed(changes, log, interval=poll_seconds)
    bell = RedisBell(settings.redis_url, feed.wake, log)
    handlers = RegistryHandlers(
        catalogue=PostgresCatalogue(engine),
        log=changes,
        feed=feed,
        schemas=JsonSchemaChecker(),
        bell=bell,
        clock=SystemClock(),
        journal=log,
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
            )
        ],
        resources=[
            channel_resource(authz),
            engine_resource(engine, lambda: migrate(engine, MIGRATIONS, schema=SCHEMA)),
            Resource(feed.start, feed.stop),
            Resource(bell.start, bell.stop),
        ],
        before_drain=feed.end,
    )
    application.bell = bell
    return application
