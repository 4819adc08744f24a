"""The composition root of approval: the only file that chooses adapters."""

from __future__ import annotations

from toolmesh.approval.v1 import approval_service_pb2_grpc as rpc

from libs.audit_client.act import ActEncoder
from libs.audit_client.outbox import ActDelivery, ActRecorder
from libs.authz_client.jwks import authz_channel, verifier_from
from libs.common.rpc.application import Resource, RpcApplication, channel_resource, engine_resource
from libs.common.rpc.client import channel_to
from libs.common.rpc.server import Service
from libs.common.rpc.stream_slots import StreamLimits, StreamSlots
from libs.common.runtime.clock import SystemClock
from libs.common.sql.engine import engine_for
from libs.common.telemetry.log import Log
from libs.common.telemetry.spans import Tracing
from libs.common.webhooks.sender import WebhookSender
from services.approval.adapters.notifications.links import PostgresLinks
from services.approval.adapters.notifications.queue import NotificationQueue
from services.approval.adapters.notifications.sender import NotificationSender
from services.approval.adapters.postgres_tickets import PostgresTickets
from services.approval.adapters.sweeper import ticket_sweeper
from services.approval.adapters.ticket_feed import TicketFeed
from services.approval.adapters.token_checks import FollowedRevocations, FollowedWatchers, IntrospectedAuthority
from services.approval.config import Settings
from services.approval.handlers import ApprovalHandlers
from services.approval.migrations import SCHEMA
from services.approval.policy import POLICY


async def build(settings: Settings, log: Log, tracing: Tracing) -> RpcApplication:
    """Compose the service."""
    engine = engine_for(settings.database_url, schema=SCHEMA.name, size=10)
    authz = authz_channel(settings.authz_address, settings)
    audit = channel_to("audit", settings.audit_address, settings, for_callers=False)
    verifier = verifier_from(authz, settings, log)
    acts = ActRecorder(ActEncoder(SCHEMA.name))
    delivery = ActDelivery(engine, acts, audit, log)
    webhooks = WebhookSender(settings.approval_notifications.destinations())
    channels = settings.approval_notifications.open(webhooks)
    links, hourly_limit = PostgresLinks(engine), settings.approval_notifications.hourly_limit
    notifier = NotificationSender(NotificationQueue(engine), links, channels, hourly_limit, log).task()
    tickets = PostgresTickets(engine, acts, channels, max_open=settings.approval_rules.max_open)
    feed, sweeper = TicketFeed(tickets, log), ticket_sweeper(tickets, log)
    handlers = ApprovalHandlers(
        tickets=tickets,
        links=links,
        changes=feed,
        authority=IntrospectedAuthority(authz),
        revocations=FollowedRevocations(verifier.view),
        watchers=FollowedWatchers(verifier.view, SystemClock()),
        rules=settings.approval_rules,
        slots=StreamSlots(StreamLimits()),
    )
    return RpcApplication(
        settings,
        log,
        tracing,
        policy=POLICY,
        verifier=verifier,
        services=[
            Service(
                "toolmesh.approval.v1.ApprovalService", lambda s: rpc.add_ApprovalServiceServicer_to_server(handlers, s)
            )
        ],
        resources=[
            engine_resource(engine, SCHEMA),
            channel_resource(authz),
            channel_resource(audit),
            Resource(delivery.start, delivery.stop),
            Resource(feed.start, feed.stop),
            Resource(sweeper.start, sweeper.stop),
            Resource(stop=webhooks.close),
            Resource(notifier.start, notifier.stop),
        ],
        before_drain=feed.end,
    )
