"""Converts between protobuf messages and the domain model."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.approval.v1 import approval_service_pb2 as service_pb
from toolmesh.approval.v1 import ticket_pb2 as pb
from toolmesh.approval.v1.approval_service_pb2 import CreateTicketRequest, RedeemTicketRequest
from toolmesh.common.v1 import caller_pb2

from libs.common.auth.identity import Identity
from services.approval.domain.model import (
    Override,
    Redemption,
    Requester,
    ReviewState,
    RiskFacts,
    Step,
    Ticket,
    TicketDraft,
    Verdict,
)
from services.approval.domain.person import Person
from services.approval.domain.ports import TicketQuery, View
from services.approval.domain.states import TicketState

_STATES: Mapping[TicketState, pb.TicketState.ValueType] = {
    state: pb.TicketState.Value(f"TICKET_STATE_{state.name}") for state in TicketState
}
_STATES_BY_VALUE: Mapping[int, TicketState] = {value: state for state, value in _STATES.items()}
_VIEWS: Mapping[int, View] = {
    service_pb.TICKET_VIEW_UNSPECIFIED: View.ALL,
    service_pb.TICKET_VIEW_APPROVER: View.APPROVER,
    service_pb.TICKET_VIEW_REQUESTER: View.REQUESTER,
}
_REVIEW_PREFIX = "REVIEW_STATE_"
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
        escalation_chain=tuple(dict.fromkeys(request.escalation_chain)),
        quorum=request.quorum or 1,
        lifetime=request.lifetime.ToTimedelta() if request.HasField("lifetime") else None,
        preview=request.preview,
        risk=_risk_from(request.risk),
        policies=tuple(request.policies),
        reason_required=request.reason_required,
    )


def redemption_from(request: RedeemTicketRequest) -> Redemption:
    """Parse the use of an approval."""
    return Redemption(
        requester=_requester(request.requester),
        tool_version=request.tool_version,
        tool_digest=request.tool_digest,
        arguments_digest=request.arguments_digest,
        policy_set_version=request.policy_set_version,
        redemption_id=request.redemption_id,
        invocation=request.invocation,
    )


def person_of(identity: Identity) -> Person:
    """Return the person of a verified token."""
    return Person(
        subject=identity.subject,
        tenant=identity.tenant,
        groups=frozenset(identity.groups),
        scopes=identity.scopes,
        token_id=identity.token_id,
        delegated=bool(identity.agent or identity.chain or identity.tier != "user"),
    )


def query_from(view: int, state: int, reader: Person | None) -> TicketQuery:
    """Parse which tickets are asked for."""
    return TicketQuery(reader, _VIEWS[view], _STATES_BY_VALUE.get(state))


def review_from(value: pb.ReviewState.ValueType) -> ReviewState:
    """Parse the verdict of a review."""
    return ReviewState(pb.ReviewState.Name(value).removeprefix(_REVIEW_PREFIX).lower())


def ticket_to(ticket: Ticket) -> pb.Ticket:
    """Build the message of a ticket."""
    draft = ticket.draft
    pending = ticket.state is TicketState.PENDING
    escalations = ticket.escalate_times[ticket.escalation_index :] if pending else ()
    return pb.Ticket(
        name=ticket.name,
        state=_STATES[ticket.state],
        tool_version=draft.tool_version,
        tool_digest=draft.tool_digest,
        arguments_digest=draft.arguments_digest,
        redacted_arguments=draft.redacted_arguments,
        preview=draft.preview,
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
        call_digest=draft.call_digest,
        risk=_risk_to(draft.risk),
        policies=draft.policies,
        reason_required=draft.reason_required,
        consequences=_consequences(ticket),
        steps=[_step(step) for step in ticket.steps],
        approval_expire_time=_timestamp(ticket.approval_expire_time),
        escalate_time=_timestamp(escalations[0]) if escalations else None,
        override=None if ticket.override is None else _override(ticket.override),
        redeem_invocation=ticket.redeem_invocation,
    )


def _consequences(ticket: Ticket) -> pb.Consequences:
    needed = ticket.draft.quorum - sum(verdict.approved for verdict in ticket.verdicts)
    more = "" if needed <= 1 else f" {needed} approvals are needed."
    return pb.Consequences(
        on_approve=f"The requester may make exactly this call, once, before the approval expires.{more}",
        on_deny="The call does not run. A new request needs a new ticket.",
        on_silence=f"The ticket is denied at {ticket.expire_time:%Y-%m-%d %H:%M:%S} UTC.",
    )


def _step(step: Step) -> pb.TicketStep:
    return pb.TicketStep(
        number=step.number,
        kind=step.kind.value,
        actor=step.actor,
        detail=step.detail,
        time=_timestamp(step.time),
    )


def _override(override: Override) -> pb.Override:
    return pb.Override(
        actor=override.actor,
        reason=override.reason,
        override_time=_timestamp(override.override_time),
        review_state=pb.ReviewState.Value(_REVIEW_PREFIX + override.review_state.name),
        reviewer=override.reviewer,
        finding=override.finding,
        review_time=_timestamp(override.review_time),
    )


def _risk_from(risk: pb.RiskFacts) -> RiskFacts:
    return RiskFacts(
        mutation_class=risk.mutation_class,
        impact_scope=risk.impact_scope,
        tags=tuple(risk.tags),
        declared_effects=tuple(risk.declared_effects),
        resources=tuple(risk.resources),
        sandbox=risk.sandbox,
        scores=tuple(sorted(risk.scores.items())),
    )


def _risk_to(risk: RiskFacts) -> pb.RiskFacts:
    return pb.RiskFacts(
        mutation_class=risk.mutation_class,
        impact_scope=risk.impact_scope,
        tags=risk.tags,
        declared_effects=risk.declared_effects,
        resources=risk.resources,
        sandbox=risk.sandbox,
        scores=dict(risk.scores),
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
