"""Builds the console: its rooms, and the routes to their pages."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack
from typing import TYPE_CHECKING

from toolmesh.approval.v1 import approval_service_pb2 as pb

from libs.common.rpc.stream_slots import StreamSlots
from libs.common.sealing import Seal
from libs.common.telemetry.log import Log
from services.gateway.console.approvals.approvals import PATH as APPROVALS
from services.gateway.console.approvals.approvals import ApprovalPages
from services.gateway.console.approvals.live_events import LIMITS, change_events
from services.gateway.console.endpoint import ConsoleEndpoint, Route, path
from services.gateway.console.login.login import Login
from services.gateway.console.login.oidc import OidcProvider
from services.gateway.console.login.session import SealedCookies
from services.gateway.console.pages import Pages
from services.gateway.console.request import ConsoleRequest
from services.gateway.console.response import EventStream, Response, redirect
from services.gateway.console.static_files import StaticFiles
from services.gateway.transport.in_flight import InFlightRequests
from services.gateway.transport.telemetry import Telemetry

if TYPE_CHECKING:
    from toolmesh.approval.v1.approval_service_pb2_grpc import ApprovalServiceAsyncStub
    from toolmesh.authz.v1.token_service_pb2_grpc import TokenServiceAsyncStub


def build_console(
    approvals: ApprovalServiceAsyncStub,
    tokens: TokenServiceAsyncStub,
    seal: Seal,
    provider: OidcProvider | None,
    in_flight: InFlightRequests,
    telemetry: Telemetry,
    log: Log,
    public_origins: Collection[str],
    sample_ratio: float,
) -> ConsoleEndpoint:
    """Return the endpoint of the console."""
    static, cookies = StaticFiles(), SealedCookies(seal)
    pages = Pages(static)
    login = Login(pages, cookies, approvals, tokens, provider)
    room, slots = ApprovalPages(approvals, pages), StreamSlots(LIMITS)

    async def home(request: ConsoleRequest) -> Response:
        return redirect(APPROVALS)

    async def events(request: ConsoleRequest, ticket_id: str = "") -> EventStream:
        session, holding = request.required_session(), ExitStack()
        holding.enter_context(slots.hold(session.subject, session.tenant))
        stream = approvals.WatchTickets(pb.WatchTicketsRequest())
        ticket = f"tickets/{ticket_id}" if ticket_id else ""
        return EventStream(change_events(stream, ticket, lambda: in_flight.serving), holding.close)

    routes = (
        Route("GET", path("/console/?"), "home", home, public=True),
        Route("GET", path("/console/login"), "login", login.show, public=True),
        Route("POST", path("/console/login"), "login_token", login.with_token, public=True),
        Route("GET", path("/console/login/oidc"), "login_oidc", login.begin_oidc, public=True),
        Route("GET", path("/console/login/callback"), "login_callback", login.finish_oidc, public=True),
        Route("POST", path("/console/logout"), "logout", login.logout),
        Route("GET", path("/console/events/approvals"), "events", events),
        Route("GET", path("/console/events/approvals/{ticket}"), "events", events),
        Route("GET", path("/console/approvals"), "approvals", room.list_tickets),
        Route("GET", path("/console/approvals/{ticket}"), "ticket", room.show_ticket),
        Route("POST", path("/console/approvals/{ticket}/approve"), "approve", room.approve),
        Route("POST", path("/console/approvals/{ticket}/deny"), "deny", room.deny),
        Route("POST", path("/console/approvals/{ticket}/cancel"), "cancel", room.cancel),
        Route("POST", path("/console/approvals/{ticket}/override"), "override", room.override),
        Route("POST", path("/console/approvals/{ticket}/review"), "review", room.review),
    )
    return ConsoleEndpoint(
        routes, login, pages, static, cookies, in_flight, telemetry, log, public_origins, sample_ratio
    )
