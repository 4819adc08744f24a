"""The RPC handlers of the approval service, in the order of the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from toolmesh.approval.v1 import approval_service_pb2 as pb
from toolmesh.approval.v1 import approval_service_pb2_grpc as rpc

from libs.common.call_context import serving
from libs.common.rpc.stream_slots import StreamSlots, stream_holder
from services.approval.convert import draft_from, person_of, query_from, redemption_from, review_from, ticket_to
from services.approval.domain.decisions.approve_ticket import approve_ticket
from services.approval.domain.decisions.deny_ticket import deny_ticket
from services.approval.domain.decisions.override_ticket import override_ticket, review_override
from services.approval.domain.lifecycle.cancel_ticket import cancel_ticket
from services.approval.domain.lifecycle.create_ticket import create_ticket
from services.approval.domain.lifecycle.redeem_ticket import redeem_ticket
from services.approval.domain.notifications.open_ticket_link import open_ticket_link
from services.approval.domain.person import Person
from services.approval.domain.ports import (
    ApproverAuthority,
    Revocations,
    TicketChanges,
    TicketLinks,
    Tickets,
    WatcherCheck,
)
from services.approval.domain.queries.get_ticket import get_ticket
from services.approval.domain.queries.list_tickets import list_tickets
from services.approval.domain.queries.watch_tickets import watch_tickets
from services.approval.domain.rules import ApprovalRules


@dataclass(frozen=True)
class ApprovalHandlers(rpc.ApprovalServiceServicer):
    """Converts, makes one call to the domain, and converts back."""

    tickets: Tickets
    links: TicketLinks
    changes: TicketChanges
    authority: ApproverAuthority
    revocations: Revocations
    watchers: WatcherCheck
    rules: ApprovalRules
    slots: StreamSlots

    async def CreateTicket(self, request: pb.CreateTicketRequest, context: Any) -> pb.CreateTicketResponse:
        ticket = await create_ticket(draft_from(request), self.tickets, self.rules)
        return pb.CreateTicketResponse(ticket=ticket_to(ticket))

    async def GetTicket(self, request: pb.GetTicketRequest, context: Any) -> pb.GetTicketResponse:
        ticket = await get_ticket(request.name, self.tickets, _reader())
        return pb.GetTicketResponse(ticket=ticket_to(ticket))

    async def ListTickets(self, request: pb.ListTicketsRequest, context: Any) -> pb.ListTicketsResponse:
        query = query_from(request.view, request.state, _reader())
        page, token = await list_tickets(query, request.page_size, request.page_token, self.tickets)
        return pb.ListTicketsResponse(tickets=[ticket_to(ticket) for ticket in page], next_page_token=token)

    async def WatchTickets(
        self, request: pb.WatchTicketsRequest, context: Any
    ) -> AsyncIterator[pb.WatchTicketsResponse]:
        query, check = query_from(request.view, 0, _reader()), self.watchers.check_of(serving().identity)
        with self.slots.hold(*stream_holder()):
            async for piece in watch_tickets(query, self.tickets, self.changes, check):
                tickets = [ticket_to(ticket) for ticket in piece.tickets]
                yield pb.WatchTicketsResponse(tickets=tickets, synced=piece.synced)

    async def ApproveTicket(self, request: pb.ApproveTicketRequest, context: Any) -> pb.ApproveTicketResponse:
        ticket = await approve_ticket(
            request.name, request.reason, request.etag, _person(), self.tickets, self.authority, self.rules
        )
        return pb.ApproveTicketResponse(ticket=ticket_to(ticket))

    async def DenyTicket(self, request: pb.DenyTicketRequest, context: Any) -> pb.DenyTicketResponse:
        ticket = await deny_ticket(request.name, request.reason, request.etag, _person(), self.tickets, self.authority)
        return pb.DenyTicketResponse(ticket=ticket_to(ticket))

    async def CancelTicket(self, request: pb.CancelTicketRequest, context: Any) -> pb.CancelTicketResponse:
        ticket = await cancel_ticket(request.name, _reader(), self.tickets)
        return pb.CancelTicketResponse(ticket=ticket_to(ticket))

    async def RedeemTicket(self, request: pb.RedeemTicketRequest, context: Any) -> pb.RedeemTicketResponse:
        use = redemption_from(request)
        ticket = await redeem_ticket(
            request.name, use, self.tickets, self.revocations, validate_only=request.validate_only
        )
        return pb.RedeemTicketResponse(ticket=ticket_to(ticket))

    async def OverrideTicket(self, request: pb.OverrideTicketRequest, context: Any) -> pb.OverrideTicketResponse:
        ticket = await override_ticket(
            request.name, request.reason, request.etag, _person(), self.tickets, self.authority, self.rules
        )
        return pb.OverrideTicketResponse(ticket=ticket_to(ticket))

    async def ReviewOverride(self, request: pb.ReviewOverrideRequest, context: Any) -> pb.ReviewOverrideResponse:
        verdict = review_from(request.verdict)
        ticket = await review_override(request.name, verdict, request.finding, _person(), self.tickets, self.authority)
        return pb.ReviewOverrideResponse(ticket=ticket_to(ticket))

    async def OpenTicketLink(self, request: pb.OpenTicketLinkRequest, context: Any) -> pb.OpenTicketLinkResponse:
        ticket = await open_ticket_link(
            request.name, request.token, _person(), self.links, self.tickets, self.authority
        )
        return pb.OpenTicketLinkResponse(ticket=ticket_to(ticket))


def _reader() -> Person | None:
    """Return the caller; None for a peer of the mesh that calls for itself."""
    identity = serving().identity
    return None if identity is None else person_of(identity)


def _person() -> Person:
    return person_of(serving().caller)
