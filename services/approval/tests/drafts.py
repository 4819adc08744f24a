"""Complete requests, drafts and tickets for tests."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from toolmesh.approval.v1 import approval_service_pb2 as pb
from toolmesh.common.v1 import caller_pb2

from libs.common.ids import new_id
from services.approval.domain.lifecycle.create_ticket import new_ticket
from services.approval.domain.model import Requester, Ticket, TicketDraft
from services.approval.domain.rules import ApprovalRules

START = datetime(2026, 1, 1, tzinfo=UTC)


def draft(**changes: Any) -> TicketDraft:
    """Return a draft with every field set."""
    made = TicketDraft(
        request_id=new_id(),
        tool_version="tools/acme.send_email/versions/1.2.3",
        tool_digest="sha256:aa",
        arguments_digest="sha256:bb",
        redacted_arguments=b'{"to":"someone","n":18446744073709551615}',
        requester=Requester(
            subject="did:web:example.com:alice",
            agent="did:web:example.com:agent",
            tenant="acme",
            tier="agent",
            token_id="t-1",
            delegation_chain=(("did:web:example.com:alice", "t-0"),),
            scopes=("tools:call",),
            session_id="s-1",
            peer="executor",
            expire_time=START + timedelta(microseconds=5),
        ),
        invocation="invocations/i-1",
        decision="decisions/d-1",
        policy_set_version="v7",
        reason="It cannot be undone.",
        escalation_chain=("leads", "owners"),
        quorum=2,
        lifetime=timedelta(hours=1),
    )
    return replace(made, **changes)


def ticket(made: TicketDraft | None = None, **changes: Any) -> Ticket:
    """Return a pending ticket."""
    made = made or draft()
    return replace(new_ticket(made, ApprovalRules(), START), **changes)


def request(**changes: Any) -> pb.CreateTicketRequest:
    """Return a request for a ticket."""
    fields: dict[str, Any] = {
        "request_id": new_id(),
        "tool_version": "tools/acme.send_email/versions/1.2.3",
        "tool_digest": "sha256:aa",
        "arguments_digest": "sha256:bb",
        "redacted_arguments": b'{"to": "someone", "n": 18446744073709551615}',
        "requester": caller_pb2.Caller(
            subject="did:web:example.com:alice",
            agent="did:web:example.com:agent",
            tenant="acme",
            tier=caller_pb2.CREDENTIAL_TIER_AGENT,
            token_id="t-1",
            delegation_chain=[caller_pb2.Actor(subject="did:web:example.com:alice", token_id="t-0")],
            scopes=["tools:call", "tools:read"],
            session_id="s-1",
            peer="executor",
        ),
        "invocation": "invocations/i-1",
        "decision": "decisions/d-1",
        "policy_set_version": "v7",
        "reason": "It cannot be undone.",
        "escalation_chain": ["leads", "owners"],
        "quorum": 2,
    }
    return pb.CreateTicketRequest(**{**fields, **changes})
