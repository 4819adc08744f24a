"""`toolmesh approvals`: what is asked of the mesh, and what is shown."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.approval.v1 import approval_service_pb2 as pb
from toolmesh.approval.v1 import ticket_pb2 as tpb
from toolmesh.common.v1 import caller_pb2
from toolmesh_sdk import Client, Reason
from toolmesh_sdk.approvals import Approvals, ticket_state

from libs.common.errors import MeshError

NAME = "tickets/00000000-0000-7000-8000-000000000001"
TICKET = tpb.Ticket(
    name=NAME,
    state=tpb.TICKET_STATE_PENDING,
    tool_version="tools/core.echo/versions/1.0.0",
    redacted_arguments=b'{"text":"hello"}',
    preview=b'{"impact":"one line"}',
    requester=caller_pb2.Caller(subject="did:web:a:alice", agent="did:web:a:agent"),
    reason="It cannot be undone.",
    escalation_chain=["leads", "owners"],
    quorum=2,
    etag="e1",
    expire_time=Timestamp(seconds=1_800_000_000),
)


def test_tickets_are_listed_and_shown(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("ListTickets", pb.ListTicketsResponse(tickets=[TICKET]))
    ran = toolmesh("approvals", "list", "--in-state", "pending", "--view", "approver")
    assert (ran.exit_code, NAME in ran.stdout, "core.echo@1.0.0" in ran.stdout) == (0, True, True)
    [asked] = mesh.of("ListTickets")
    assert (asked.request.state, asked.request.view) == (tpb.TICKET_STATE_PENDING, pb.TICKET_VIEW_APPROVER)
    mesh.answer("ListTickets", pb.ListTicketsResponse(tickets=[TICKET]))
    assert toolmesh("approvals", "list", "--names").stdout.strip() == NAME
    assert toolmesh("approvals", "list", "--in-state", "lost").exit_code == 2
    mesh.answer("GetTicket", pb.GetTicketResponse(ticket=TICKET))
    shown = toolmesh("approvals", "show", NAME).stdout
    assert all(part in shown for part in ('{"text":"hello"}', "one line", "did:web:a:agent for did:web:a:alice"))
    mesh.answer("GetTicket", pb.GetTicketResponse(ticket=TICKET))
    document = json.loads(toolmesh("approvals", "show", NAME, "--json").stdout)["ticket"]
    assert (document["state"], document["redacted_arguments"]) == ("pending", {"text": "hello"})


@pytest.mark.parametrize("verb", ["approve", "deny"])
def test_a_decision_carries_its_reason_and_a_refusal_fails(toolmesh: Any, mesh: Any, verb: str) -> None:
    rpc = f"{verb.title()}Ticket"
    mesh.answer(rpc, getattr(pb, f"{rpc}Response")(ticket=TICKET))
    assert toolmesh("approvals", verb, NAME, "--reason", "seen").exit_code == 0
    [asked] = mesh.of(rpc)
    assert (asked.request.name, asked.request.reason) == (NAME, "seen")
    mesh.answer(rpc, MeshError(Reason.SELF_APPROVAL))
    assert toolmesh("approvals", verb, NAME, "--reason", "seen").exit_code not in (0, 2)


def test_a_call_carries_its_ticket(toolmesh: Any, mesh: Any) -> None:
    mesh.answer("Invoke", MeshError(Reason.TICKET_REDEEMED))
    assert toolmesh("call", "echo", "{}", "--ticket", NAME).exit_code != 0
    assert mesh.of("Invoke")[0].request.ticket == NAME


def test_a_watch_shows_each_change_once(mesh: Any, serve: Any) -> None:
    changed = tpb.Ticket(name=NAME, state=tpb.TICKET_STATE_APPROVED, etag="e2")
    pieces = [
        pb.WatchTicketsResponse(tickets=[TICKET]),
        pb.WatchTicketsResponse(synced=True),
        pb.WatchTicketsResponse(tickets=[TICKET, changed], synced=True),
    ]
    mesh.answer("WatchTickets", pieces)
    with Client(serve(), token="t") as client:
        watch = Approvals(client).watch(view="approver")
        assert [ticket_state(next(watch)), ticket_state(next(watch))] == ["pending", "approved"]
        watch.close()  # type: ignore[attr-defined]
    assert mesh.of("WatchTickets")[0].request.view == pb.TICKET_VIEW_APPROVER
