"""The composition root of approval: the only file that chooses adapters."""

from __future__ import annotations

from toolmesh.approval.v1 import approval_service_pb2_grpc as rpc

from libs.authz_client.jwks import authz_channel, verifier_from
from libs.common.rpc.application import Resource, RpcApplication, channel_resource, engine_resource
from libs.common.rpc.server import Service
from libs.common.runtime.clock import Clock, SystemClock
from libs.common.sql.engine import engine_for
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from services.approval.adapters.postgres_tickets import PostgresTickets
from services.approval.adapters.sweeper import expiry_sweeper
from services.approval.config import Settings
from services.approval.handlers import ApprovalHandlers
from services.approval.migrations import SCHEMA
from services.approval.policy import POLICY


async def build(settings: Settings, log: Log, tracing: Tracing) -> RpcApplication:
    """Compose the service."""
    return compose(settings, log, tracing, SystemClock())


def compose(settings: Settings, log: Log, tracing: Tracing, clock: Clock) -> RpcApplication:
    """Compose the service with the given clock."""
    engine = engine_for(settings.database_url, schema=SCHEMA.name)
    authz = authz_channel(settings.authz_address, settings)
    tickets = PostgresTickets(engine)
    handlers, sweeper = ApprovalHandlers(tickets, clock), expiry_sweeper(tickets, clock, log)
    return RpcApplication(
        settings,
        log,
        tracing,
        policy=POLICY,
        verifier=verifier_from(authz, settings, log),
        services=[
            Service(
                "toolmesh.approval.v1.ApprovalService", lambda s: rpc.add_ApprovalServiceServicer_to_server(handlers, s)
            )
        ],
        resources=[
            engine_resource(engine, SCHEMA),
            channel_resource(authz),
            Resource(sweeper.start, sweeper.stop),
        ],
    )
