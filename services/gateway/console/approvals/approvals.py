"""The approvals room: the list of tickets, one ticket, and the decision about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from toolmesh.approval.v1 import approval_service_pb2 as pb
from toolmesh.approval.v1 import ticket_pb2

from libs.common.errors import MeshError, Reason
from libs.common.ids import new_id
from services.gateway.console.approvals.ticket_view import page_of, summary_of
from services.gateway.console.login.origin_check import check_form_token
from services.gateway.console.pages import Pages, error_view
from services.gateway.console.peer_calls import answer_of
from services.gateway.console.request import ConsoleRequest
from services.gateway.console.response import Response, redirect

if TYPE_CHECKING:
    from toolmesh.approval.v1.approval_service_pb2_grpc import ApprovalServiceAsyncStub

PATH = "/console/approvals"
PAGE_SIZE = 50
# How far back an earlier call of the same tool is looked for.
_EARLIER = 25
VIEWS = {
    "approver": ("To decide", pb.TICKET_VIEW_APPROVER, ticket_pb2.TICKET_STATE_PENDING),
    "requester": ("Your requests", pb.TICKET_VIEW_REQUESTER, ticket_pb2.TICKET_STATE_UNSPECIFIED),
    "all": ("All", pb.TICKET_VIEW_UNSPECIFIED, ticket_pb2.TICKET_STATE_UNSPECIFIED),
}


class ApprovalPages:
    """Serves the room with the caller's own token: the approval service decides what it shows and accepts."""

    def __init__(self, approvals: ApprovalServiceAsyncStub, pages: Pages) -> None:
        self._approvals, self._pages = approvals, pages

    async def list_tickets(self, request: ConsoleRequest) -> Response:
        """Serve the list, or for htmx its changing part alone."""
        view = request.query.get("view", "approver")
        if view not in VIEWS:
            raise MeshError(Reason.NOT_FOUND, message="there is no such list")
        _, selection, state = VIEWS[view]
        page_token = request.query.get("page", "")
        message = pb.ListTicketsRequest(page_size=PAGE_SIZE, view=selection, state=state, page_token=page_token)
        page = await self._approvals.ListTickets(message)
        return self._pages.render(
            request,
            "approvals/rows.html" if request.partial else "approvals/list.html",
            room="approvals",
            view=view,
            views=[(name, title) for name, (title, _, _) in VIEWS.items()],
            tickets=[summary_of(ticket) for ticket in page.tickets],
            page=page_token,
            next_page=page.next_page_token,
        )

    async def show_ticket(self, request: ConsoleRequest, ticket_id: str) -> Response:
        """Serve the page of a ticket. The link of a notification is used first, and leaves the address of the page."""
        token = request.query.get("link", "")
        if token and request.method == "GET":
            await self._approvals.OpenTicketLink(pb.OpenTicketLinkRequest(name=f"tickets/{ticket_id}", token=token))
            return redirect(f"{PATH}/{ticket_id}")
        template = "approvals/ticket_body.html" if request.partial else "approvals/ticket.html"
        return await self._ticket(request, f"tickets/{ticket_id}", template)

    async def approve(self, request: ConsoleRequest, ticket_id: str) -> Response:
        """Vote for a ticket."""
        return await self._decide(request, ticket_id, self._approvals.ApproveTicket, pb.ApproveTicketRequest)

    async def deny(self, request: ConsoleRequest, ticket_id: str) -> Response:
        """Deny a ticket."""
        return await self._decide(request, ticket_id, self._approvals.DenyTicket, pb.DenyTicketRequest)

    async def cancel(self, request: ConsoleRequest, ticket_id: str) -> Response:
        """Withdraw a ticket of one's own."""
        message = pb.CancelTicketRequest(name=f"tickets/{ticket_id}", request_id=new_id())
        return await self._change(request, ticket_id, self._approvals.CancelTicket, message)

    async def override(self, request: ConsoleRequest, ticket_id: str) -> Response:
        """Approve a ticket without its quorum (break glass)."""
        return await self._decide(request, ticket_id, self._approvals.OverrideTicket, pb.OverrideTicketRequest)

    async def review(self, request: ConsoleRequest, ticket_id: str) -> Response:
        """Close the review of an override, as the button says."""
        upheld = request.form.get("verdict") == "upheld"
        message = pb.ReviewOverrideRequest(
            name=f"tickets/{ticket_id}",
            verdict=ticket_pb2.REVIEW_STATE_UPHELD if upheld else ticket_pb2.REVIEW_STATE_REJECTED,
            finding=request.form.get("finding", "").strip(),
            request_id=new_id(),
        )
        return await self._change(request, ticket_id, self._approvals.ReviewOverride, message)

    async def _decide(self, request: ConsoleRequest, ticket_id: str, call: Any, message: Any) -> Response:
        """Send the decision, about the ticket as the person saw it."""
        decision = message(
            name=f"tickets/{ticket_id}",
            reason=request.form.get("reason", "").strip(),
            etag=request.form.get("etag", ""),
            request_id=new_id(),
        )
        return await self._change(request, ticket_id, call, decision)

    async def _change(self, request: ConsoleRequest, ticket_id: str, call: Any, message: Any) -> Response:
        """Change a ticket and show it. A refusal shows it with the advice, and with the reason that was typed."""
        check_form_token(request)
        try:
            await answer_of(call(message))
        except MeshError as error:
            status = error.row.http_status
            if status == 401 or error.reason is Reason.NOT_FOUND:
                raise
            values = {"error": error_view(error, request.trace_id), "reason": request.form.get("reason", "")}
            return await self._ticket(request, message.name, "approvals/ticket.html", status=status, **values)
        return redirect(f"{PATH}/{ticket_id}")

    async def _ticket(
        self, request: ConsoleRequest, name: str, template: str, *, status: int = 200, **values: Any
    ) -> Response:
        ticket = (await self._approvals.GetTicket(pb.GetTicketRequest(name=name))).ticket
        shown = {"error": None, "reason": "", **page_of(ticket, await self._redeemed()), **values}
        return self._pages.render(request, template, status=status, room="approvals", **shown)

    async def _redeemed(self) -> Sequence[ticket_pb2.Ticket]:
        """Return the newest tickets whose calls ran; none if that fails, because the page is useful without them."""
        message = pb.ListTicketsRequest(page_size=_EARLIER, state=ticket_pb2.TICKET_STATE_REDEEMED)
        try:
            return (await answer_of(self._approvals.ListTickets(message))).tickets
        except MeshError:
            return ()
