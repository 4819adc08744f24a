"""The RPC handlers of the approval service, in the order of the contract."""

from __future__ import annotations

from typing import Any

from toolmesh.approval.v1 import approval_service_pb2 as pb
from toolmesh.approval.v1 import approval_service_pb2_grpc as rpc

from libs.common.call_context import serving
from libs.common.runtime.clock import Clock
from services.approval.convert import draft_from, state_from, ticket_to
from services.approval.domain.cancel_ticket import cancel_ticket
from services.approval.domain.create_ticket import create_ticket
from services.approval.domain.get_ticket import get_ticket
from services.approval.domain.list_tickets import list_tickets
from services.approval.domain.ports import Tickets


class ApprovalHandlers(rpc.ApprovalServiceServicer):
    """Converts, makes one call to the domain, and converts back."""

    def __init__(self, tickets: Tickets, clock: Clock) -> None:
        self._tickets, self._clock = tickets, clock

    async def CreateTicket(self, request: pb.CreateTicketRequest, context: Any) -> pb.CreateTicketResponse:
        ticket = await create_ticket(draft_from(request), self._tickets, self._clock)
        return pb.CreateTicketResponse(ticket=ticket_to(ticket))

    async def GetTicket(self, request: pb.GetTicketRequest, context: Any) -> pb.GetTicketResponse:
        ticket = await get_ticket(request.name, self._tickets, self._clock, tenant=serving().tenant)
        return pb.GetTicketResponse(ticket=ticket_to(ticket))

    async def ListTickets(self, request: pb.ListTicketsRequest, context: Any) -> pb.ListTicketsResponse:
        page, token = await list_tickets(
            state_from(request.state),
            request.page_size,
            request.page_token,
            self._tickets,
            self._clock,
            tenant=serving().tenant,
        )
        return pb.ListTicketsResponse(tickets=[ticket_to(ticket) for ticket in page], next_page_token=token)

    async def CancelTicket(self, request: pb.CancelTicketRequest, context: Any) -> pb.CancelTicketResponse:
        ticket = await cancel_ticket(request.name, self._tickets, self._clock)
        return pb.CancelTicketResponse(ticket=ticket_to(ticket))
