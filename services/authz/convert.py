"""Between the contract and the domain. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.authz.v1 import authz_service_pb2 as pb
from toolmesh.authz.v1 import capability_token_pb2 as token_pb
from toolmesh.authz.v1 import decision_pb2
from toolmesh.common.v1 import caller_pb2, error_reason_pb2

from libs.common.auth.identity import Grant
from libs.common.names import split_version_name
from libs.common.semver import Version
from services.authz.domain.model import (
    Allow,
    CallFacts,
    Decision,
    Deny,
    Introspection,
    IssuedToken,
    TokenRequest,
)

_TIERS = {
    "user": caller_pb2.CREDENTIAL_TIER_USER,
    "agent": caller_pb2.CREDENTIAL_TIER_AGENT,
    "invocation": caller_pb2.CREDENTIAL_TIER_INVOCATION,
}


def token_request(request: pb.IssueTokenRequest) -> TokenRequest:
    """Read what a token is asked to carry."""
    lifetime = request.lifetime
    return TokenRequest(
        subject=request.subject,
        tools=tuple(Grant(grant.tool, grant.version_constraint) for grant in request.tools),
        scopes=tuple(request.scopes),
        lifetime=lifetime.seconds + lifetime.nanos / 1e9 if request.HasField("lifetime") else None,
        tenant=request.tenant,
        groups=tuple(request.groups),
        trust_level=request.trust_level,
        audiences=tuple(request.audiences),
    )


def issued_message(issued: IssuedToken) -> pb.IssueTokenResponse:
    """Render a token and what was signed."""
    return pb.IssueTokenResponse(token=issued.token, claims=claims_message(issued.claims))


def introspection_message(found: Introspection) -> pb.IntrospectTokenResponse:
    """Render whether a token is accepted."""
    if found.claims is None:
        return pb.IntrospectTokenResponse(error_code=found.error_code)
    return pb.IntrospectTokenResponse(active=True, claims=claims_message(found.claims))


def claims_message(claims: Mapping[str, Any]) -> token_pb.CapabilityTokenClaims:
    """Render claims from the very object that was signed, so that the two cannot differ.

    A claim that an older issuer did not write stays unset: a token that is accepted can always be shown.
    """
    audience = claims["aud"]
    message = token_pb.CapabilityTokenClaims(
        issuer=claims["iss"],
        subject=claims["sub"],
        audiences=[audience] if isinstance(audience, str) else audience,
        token_id=claims["jti"],
        issue_time=Timestamp(seconds=int(claims["iat"])),
        expire_time=Timestamp(seconds=int(claims["exp"])),
        tier=_TIERS.get(claims.get("tier", "user"), caller_pb2.CREDENTIAL_TIER_UNSPECIFIED),
        tools=[
            token_pb.ToolGrant(tool=t["tool"], version_constraint=t.get("version", "")) for t in claims.get("tools", [])
        ],
        scopes=claims.get("scope", "").split(),
        tenant=claims.get("tenant", ""),
        groups=claims.get("groups", []),
        trust_level=claims.get("trust", 0),
        actor_chain=[caller_pb2.Actor(subject=a["sub"], token_id=a["jti"]) for a in claims.get("act", [])],
    )
    if "nbf" in claims:
        message.not_before.seconds = int(claims["nbf"])
    return message


def call_facts(call: pb.CallFacts) -> CallFacts:
    """Read a call in question."""
    tool, version = split_version_name(call.tool_version)
    return CallFacts(
        tool=tool,
        version=Version.parse(version),
        mutation_class=call.mutation_class,
        required_scopes=frozenset(call.required_scopes),
        required_permissions=tuple(call.required_permissions),
        tags=tuple(call.tags),
        approval_always=call.approval_always,
        impact_scope=call.impact_scope,
        arguments_digest=call.arguments_digest,
        session_id=call.session_id,
    )


def decision_message(decision: Decision) -> decision_pb2.Decision:
    """Render a decision."""
    verdict = decision.verdict
    message = decision_pb2.Decision(
        name=decision.name,
        reasons=verdict.reasons,
        determining_policies=verdict.policies,
        policy_set_version=decision.policy_set_version,
        suggested_updates=[decision_pb2.SuggestedUpdate(kind=u.kind, value=u.value) for u in verdict.suggested_updates],
        mode=decision_pb2.DECISION_MODE_ENFORCE,
        source="policy",
        cacheable=decision.cacheable,
        decide_time=_timestamp(decision.decide_time),
        expire_time=_timestamp(decision.expire_time),
    )
    _set_outcome(message, decision)
    return message


def _set_outcome(message: decision_pb2.Decision, decision: Decision) -> None:
    outcome = decision.verdict.outcome
    if isinstance(outcome, Allow):
        message.allow.SetInParent()
    elif isinstance(outcome, Deny):
        message.deny.reason = error_reason_pb2.ErrorReason.ValueType(outcome.reason)
    else:
        message.needs_approval.approver_groups.extend(outcome.approver_groups)
        message.needs_approval.quorum = outcome.quorum
        message.needs_approval.policy = outcome.policy


def _timestamp(moment: datetime) -> Timestamp:
    stamp = Timestamp()
    stamp.FromDatetime(moment)
    return stamp
