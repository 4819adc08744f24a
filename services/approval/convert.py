"""Converts between protobuf messages and the domain model."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.approval.v1 import ticket_pb2 as pb
from toolmesh.approval.v1.approval_service_pb2 import CreateTicketRequest
from toolmesh.common.v1 import caller_pb2

from services.approval.domain.model import DEFAULT_LIFETIME, Requester, Ticket, TicketDraft, Verdict
from services.approval.domain.states import TicketState

_STATES: Mapping[TicketState, pb.TicketState.ValueType] = {
    state: pb.TicketState.Value(f"TICKET_STATE_{state.name}") for state in TicketState
}
_STATES_BY_VALUE = {value: state for state, value in _STATES.items()}
_TIER_PREFIX = "CREDENTIAL_TIER_"


def draft_from(request: CreateTicketRequest) -> TicketDraft:
    """Parse a request, with the defaults of the contract."""
    return TicketDraft(
        request_id=request.request_id,
        tool_version=request.tool_version,
        tool_digest=request.tool_digest,
        arguments_digest=request.arguments_digest,
        redacted_arguments=request.redacted_arguments or b"{}",
        requester=_requester(request.requester),
        invocation=request.invocation,
        decision=request.decision,
        policy_set_version=request.policy_set_version,
        reason=request.reason,
        escalation_chain=tuple(request.escalation_chain),
        quorum=request.quorum or 1,
        lifetime=request.lifetime.ToTimedelta() if request.HasField("lifetime") else DEFAULT_LIFETIME,
    )


def state_from(value: pb.TicketState.ValueType) -> TicketState | None:
    """Parse a state filter; None means every state."""
    return _STATES_BY_VALUE.get(value)


def ticket_to(ticket: Ticket) -> pb.Ticket:
    """Build the message of a ticket."""
    draft = ticket.draft
    return pb.Ticket(
        name=ticket.name,
        state=_STATES[ticket.state],
        tool_version=draft.tool_version,
        tool_digest=draft.tool_digest,
        arguments_digest=draft.arguments_digest,
        redacted_arguments=draft.redacted_arguments,
        preview=ticket.preview,
        requester=_caller(draft.requester),
        invocation=draft.invocation,
        decision=draft.decision,
        policy_set_version=draft.policy_set_version,
        reason=draft.reason,
        escalation_chain=draft.escalation_chain,
        escalation_index=ticket.escalation_index,
        quorum=draft.quorum,
        verdicts=[_verdict(verdict) for verdict in ticket.verdicts],
        create_time=_timestamp(ticket.create_time),
        expire_time=_timestamp(ticket.expire_time),
        resolve_time=_timestamp(ticket.resolve_time),
        redeem_time=_timestamp(ticket.redeem_time),
        etag=ticket.etag,
    )


def _requester(caller: caller_pb2.Caller) -> Requester:
    return Requester(
        subject=caller.subject,
        agent=caller.agent,
        tenant=caller.tenant,
        tier=_tier_name(caller.tier),
        token_id=caller.token_id,
        delegation_chain=tuple((actor.subject, actor.token_id) for actor in caller.delegation_chain),
        scopes=tuple(caller.scopes),
        session_id=caller.session_id,
        peer=caller.peer,
        expire_time=_datetime(caller.expire_time) if caller.HasField("expire_time") else None,
    )


def _caller(requester: Requester) -> caller_pb2.Caller:
    return caller_pb2.Caller(
        subject=requester.subject,
        agent=requester.agent,
        tenant=requester.tenant,
        tier=caller_pb2.CredentialTier.Value(_TIER_PREFIX + (requester.tier or "unspecified").upper()),
        token_id=requester.token_id,
        delegation_chain=[caller_pb2.Actor(subject=s, token_id=t) for s, t in requester.delegation_chain],
        scopes=requester.scopes,
        session_id=requester.session_id,
        peer=requester.peer,
        expire_time=_timestamp(requester.expire_time),
    )


def _tier_name(value: caller_pb2.CredentialTier.ValueType) -> str:
    known = caller_pb2.CredentialTier.DESCRIPTOR.values_by_number.get(value)
    # An unknown tier must not be shown as authority.
    return known.name.removeprefix(_TIER_PREFIX).lower() if known is not None and value else ""


def _verdict(verdict: Verdict) -> pb.Verdict:
    return pb.Verdict(
        approver=verdict.approver,
        approved=verdict.approved,
        comment=verdict.comment,
        decide_time=_timestamp(verdict.decide_time),
    )


def _timestamp(time: datetime | None) -> Timestamp | None:
    if time is None:
        return None
    timestamp = Timestamp()
    timestamp.FromDatetime(time)
    return timestamp


def _datetime(timestamp: Timestamp) -> datetime:
    # Rounded down to microseconds, the precision of the store.
    offset = timedelta(seconds=timestamp.seconds, microseconds=timestamp.nanos // 1000)
    return datetime(1970, 1, 1, tzinfo=UTC) + offset
