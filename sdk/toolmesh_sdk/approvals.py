"""Lists, shows, watches and decides approval tickets."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
from toolmesh.approval.v1 import approval_service_pb2 as pb
from toolmesh.approval.v1 import ticket_pb2
from toolmesh.approval.v1.approval_service_pb2_grpc import ApprovalServiceStub

from toolmesh_sdk._wire.status import error_from_rpc
from toolmesh_sdk._wire.trace import trace_id_of
from toolmesh_sdk._wire.watch import ResumedStream
from toolmesh_sdk.client import Client

_MAX_PAGE_SIZE = 100


def ticket_state(ticket: ticket_pb2.Ticket) -> str:
    """Return the state in lower case, such as `pending`."""
    return str(ticket_pb2.TicketState.Name(ticket.state)).removeprefix("TICKET_STATE_").lower()


class Approvals:
    """Works with tickets through a client, which it does not close. Every failure is a ToolmeshError.

    Callers see the tickets that they requested and those that ask their groups; the scope `approvals:read` shows all of
    the tenant. Decisions need the scope `approvals:decide` and a token of the person's own.
    """

    def __init__(self, client: Client) -> None:
        self._transport = client.transport
        self._stub = ApprovalServiceStub(self._transport.channel)

    def list(
        self, *, state: str = "", view: str = "", number: int = 100, timeout: float | None = None
    ) -> Iterator[ticket_pb2.Ticket]:
        """Yield tickets, the newest first. `view` is approver (those to decide), requester, or empty for all.

        Raises ValueError for an unknown state or view.
        """
        request = pb.ListTicketsRequest(
            page_size=min(number, _MAX_PAGE_SIZE),
            state=ticket_pb2.TicketState.Value(f"TICKET_STATE_{(state or 'unspecified').upper()}"),
            view=_view(view),
        )
        while number > 0:
            page = self._transport.unary(self._stub.ListTickets, request, timeout, repeatable=True)
            yield from page.tickets[:number]
            number -= len(page.tickets)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def get(self, name: str, *, timeout: float | None = None) -> ticket_pb2.Ticket:
        """Return one ticket."""
        request = pb.GetTicketRequest(name=name)
        return self._transport.unary(self._stub.GetTicket, request, timeout, repeatable=True).ticket

    def approve(
        self, name: str, reason: str = "", *, etag: str = "", timeout: float | None = None
    ) -> ticket_pb2.Ticket:
        """Vote for a ticket. With the etag of a ticket that was shown, a ticket that changed since is not approved."""
        request = pb.ApproveTicketRequest(name=name, reason=reason, etag=etag)
        return self._transport.unary(self._stub.ApproveTicket, request, timeout, repeatable=not etag).ticket

    def deny(self, name: str, reason: str, *, etag: str = "", timeout: float | None = None) -> ticket_pb2.Ticket:
        """Deny a ticket; one denial ends it."""
        request = pb.DenyTicketRequest(name=name, reason=reason, etag=etag)
        return self._transport.unary(self._stub.DenyTicket, request, timeout, repeatable=not etag).ticket

    def cancel(self, name: str, *, timeout: float | None = None) -> ticket_pb2.Ticket:
        """Withdraw a ticket of one's own."""
        request = pb.CancelTicketRequest(name=name)
        return self._transport.unary(self._stub.CancelTicket, request, timeout, repeatable=True).ticket

    def override(self, name: str, reason: str, *, timeout: float | None = None) -> ticket_pb2.Ticket:
        """Approve a ticket without its quorum, in an emergency. Another person must review that afterwards."""
        request = pb.OverrideTicketRequest(name=name, reason=reason)
        return self._transport.unary(self._stub.OverrideTicket, request, timeout, repeatable=True).ticket

    def review(self, name: str, verdict: str, finding: str, *, timeout: float | None = None) -> ticket_pb2.Ticket:
        """Close the review of an override; `verdict` is upheld or rejected."""
        number = ticket_pb2.ReviewState.Value(f"REVIEW_STATE_{verdict.upper()}")
        request = pb.ReviewOverrideRequest(name=name, verdict=number, finding=finding)
        return self._transport.unary(self._stub.ReviewOverride, request, timeout, repeatable=True).ticket

    def watch(self, *, view: str = "", timeout: float | None = None) -> Iterator[ticket_pb2.Ticket]:
        """Iterate over the open tickets, and then over each that is made or changes.

        After a lost connection the open tickets are read again; a ticket that did not change meanwhile is not repeated.
        Ends after the timeout; without one, when the caller stops.
        """
        options, seen = self._transport.options, dict[str, str]()
        watch = ResumedStream(options.retry, timeout)
        request = pb.WatchTicketsRequest(view=_view(view))
        while (seconds := watch.next_stream()) is not None:
            trace, error = options.traceparent(), None
            stream = self._stub.WatchTickets(request, timeout=seconds, metadata=options.metadata(trace))
            try:
                for piece in stream:
                    watch.note_progress()
                    for ticket in piece.tickets:
                        if seen.get(ticket.name) != ticket.etag:
                            seen[ticket.name] = ticket.etag
                            yield ticket
            except grpc.RpcError as failure:
                error = error_from_rpc(failure, trace_id_of(trace))
            finally:
                stream.cancel()
            self._transport.pause(watch.wait_after(error))


def _view(label: str) -> pb.TicketView.ValueType:
    return pb.TicketView.Value(f"TICKET_VIEW_{(label or 'unspecified').upper()}")
