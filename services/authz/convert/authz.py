"""Converts the messages of AuthzService."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache

from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.authz.v1 import authz_service_pb2 as pb
from toolmesh.authz.v1 import decision_pb2
from toolmesh.common.v1 import error_reason_pb2

from libs.common.errors import Reason
from libs.common.semver import Version
from libs.common.tool_names import ToolName, split_version_name
from services.authz.convert.tokens import claims_message
from services.authz.domain.decisions.filter_tools import Usability
from services.authz.domain.model import (
    Allow,
    CallFacts,
    Decision,
    Deny,
    Introspection,
    IssuedToken,
    Limit,
    NeedsApproval,
    Outcome,
    Refusal,
    SubjectFacts,
    Verdict,
)

_OBLIGATIONS = {
    name.removeprefix("OBLIGATION_KIND_").lower(): number for name, number in decision_pb2.ObligationKind.items()
}
_USABILITIES = {one: pb.Usability.Value(f"USABILITY_{one}") for one in Usability}


def issued_message(issued: IssuedToken) -> pb.IssueTokenResponse:
    """Build the response with a token and its claims."""
    return pb.IssueTokenResponse(token=issued.token, claims=claims_message(issued.claims))


def introspection_message(introspection: Introspection) -> pb.IntrospectTokenResponse:
    """Build the response with the state of a token."""
    if introspection.claims is None:
        return pb.IntrospectTokenResponse(error_code=introspection.error_code)
    return pb.IntrospectTokenResponse(active=True, claims=claims_message(introspection.claims))


def call_facts(call: pb.CallFacts) -> CallFacts:
    """Parse the call that a decision is about."""
    tool, version = _version_of(call.tool_version)
    return CallFacts(
        tool=tool,
        version=version,
        mutation_class=call.mutation_class,
        required_scopes=frozenset(call.required_scopes),
        required_permissions=_texts(call.required_permissions),
        tags=_texts(call.tags),
        approval_always=call.approval_always,
        impact_scope=call.impact_scope,
        arguments_digest=call.arguments_digest,
        session_id=call.session_id,
        tool_digest=call.tool_digest,
        invocation_id=call.invocation_id,
        arguments=call.arguments,
        resources=_texts(call.resources),
        closed_world=call.closed_world,
        tool_trust=call.tool_trust,
        tool_trust_age_hours=call.tool_trust_age_hours,
        tool_stage=call.tool_stage or "submitted",
        publisher_verified=call.publisher_verified,
        tool_health=call.tool_health or "healthy",
        result_labels=_texts(call.result_labels),
        risk=tuple(call.risk.items()) if call.risk else (),
    )


def subject_facts(subject: pb.SubjectFacts) -> SubjectFacts:
    """Parse the subject that a decision is about."""
    return SubjectFacts(
        subject=subject.subject,
        kind=pb.PrincipalKind.Name(subject.kind).removeprefix("PRINCIPAL_KIND_").lower(),
        on_behalf_of=subject.on_behalf_of,
        tenant=subject.tenant,
        trust_level=subject.trust_level,
        groups=tuple(subject.groups),
        scopes=frozenset(subject.scopes),
    )


def refusal_of(message: pb.Refusal) -> Refusal:
    """Parse a refusal of the executor. A reason that this build does not know denies as PERMISSION_DENIED."""
    outcome: Deny | NeedsApproval
    if message.WhichOneof("outcome") == "needs_approval":
        asked = message.needs_approval
        outcome = NeedsApproval(tuple(asked.approver_groups), asked.quorum, asked.policy, asked.reason_required)
    else:
        number = int(message.deny.reason)
        outcome = Deny(Reason(number) if number in Reason.__members__.values() else Reason.PERMISSION_DENIED)
    return Refusal(outcome, tuple(message.reasons), message.blocked_path, message.follows)


def usability_values(results: Iterable[Usability]) -> list[pb.Usability.ValueType]:
    """Convert usabilities to enum values."""
    return [_USABILITIES[usability] for usability in results]


def check_response(decision: Decision) -> pb.CheckResponse:
    """Build the response of Check."""
    response = pb.CheckResponse()
    _fill(decision, response.decision)
    return response


def decision_message(decision: Decision) -> decision_pb2.Decision:
    """Build the message of a decision."""
    message = decision_pb2.Decision()
    _fill(decision, message)
    return message


def obligation_messages(verdict: Verdict) -> list[decision_pb2.Obligation]:
    """Build the messages of what a verdict obliges the executor to do."""
    return [decision_pb2.Obligation(kind=_OBLIGATIONS[one.kind], values=one.values) for one in verdict.obligations]


def _fill(decision: Decision, message: decision_pb2.Decision) -> None:
    message.MergeFromString(_serialized_verdict(decision.verdict, decision.policy_set_version))
    message.name = decision.name
    message.cacheable = decision.cacheable
    _set_timestamp(message.decide_time, decision.decide_time)
    _set_timestamp(message.expire_time, decision.expire_time)
    if decision.by_executor:
        message.source, message.follows = "executor", decision.follows
    if decision.added_labels:
        message.added_labels.extend(decision.added_labels)
    if decision.cleared_labels:
        message.cleared_labels.extend(decision.cleared_labels)
    if decision.limits:
        message.limits.extend(_limit_message(limit) for limit in decision.limits)
    if decision.cost_micros:
        # Also without limits: the price is a cost of the call, in its record and in usage.
        message.cost_micros = decision.cost_micros


@lru_cache(maxsize=1024)
def _serialized_verdict(verdict: Verdict, policy_set_version: str) -> bytes:
    """Serialize the part that decisions with the same verdict share. Most decisions have one of a few verdicts."""
    message = decision_pb2.Decision(
        reasons=verdict.reasons,
        determining_policies=verdict.policies,
        policy_set_version=policy_set_version,
        obligations=obligation_messages(verdict),
        suggested_updates=[decision_pb2.SuggestedUpdate(kind=u.kind, value=u.value) for u in verdict.suggested_updates],
        mode=decision_pb2.DECISION_MODE_ENFORCE,
        source="policy",
        blocked_path=verdict.blocked_path,
    )
    _set_outcome(message, verdict.outcome)
    return message.SerializeToString()


def _limit_message(limit: Limit) -> decision_pb2.Limit:
    message = decision_pb2.Limit(
        bucket=limit.bucket,
        max_calls=limit.max_calls,
        max_cost_micros=limit.max_cost_micros,
        max_concurrent=limit.max_concurrent,
        source=limit.source,
    )
    if limit.window_seconds is not None:
        message.window.FromMicroseconds(round(limit.window_seconds * 1e6))
    if limit.max_running_seconds is not None:
        message.max_running_time.FromMicroseconds(round(limit.max_running_seconds * 1e6))
    if limit.expires_at is not None:
        message.expire_time.FromMicroseconds(round(limit.expires_at * 1e6))
    return message


def _set_outcome(message: decision_pb2.Decision, outcome: Outcome) -> None:
    if isinstance(outcome, Allow):
        message.allow.SetInParent()
    elif isinstance(outcome, Deny):
        message.deny.reason = error_reason_pb2.ErrorReason.ValueType(outcome.reason)
    else:
        message.needs_approval.approver_groups.extend(outcome.approver_groups)
        message.needs_approval.quorum = outcome.quorum
        message.needs_approval.policy = outcome.policy
        message.needs_approval.reason_required = outcome.reason_required


def _set_timestamp(message: Timestamp, time: datetime) -> None:
    # FromDatetime takes ten times as long, and every decision has two timestamps.
    message.seconds = int(time.timestamp() // 1)
    message.nanos = time.microsecond * 1000


def _texts(values: Sequence[str]) -> tuple[str, ...]:
    # The test for emptiness is cheaper than the iteration, and these fields are nearly always empty.
    return tuple(values) if values else ()


@lru_cache(maxsize=4096)
def _version_of(name: str) -> tuple[ToolName, Version]:
    """Parse the name of a tool version. Cached, because few tools get most calls."""
    tool, version = split_version_name(name)
    return tool, Version.parse(version)
