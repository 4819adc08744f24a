"""Converts decisions and their requests to JSON rows and back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson

from libs.common.auth.identity import Identity
from libs.common.errors import Reason
from libs.common.semver import Version
from libs.common.tool_names import split_version_name
from services.authz.adapters.postgres.session_labels import label_scopes
from services.authz.domain.model import (
    Allow,
    CallFacts,
    ContextField,
    Decision,
    DecisionRequest,
    Deny,
    NeedsApproval,
    Obligation,
    Outcome,
    SuggestedUpdate,
    Verdict,
)
from services.authz.domain.policies.model import RecordedDecision


def request_row(request: DecisionRequest, context_fields: frozenset[ContextField] | None) -> dict[str, Any]:
    """Return the request as JSON, without arguments and resources."""
    caller, call = request.caller, request.call
    return {
        "caller": {
            "subject": caller.subject,
            "tier": caller.tier,
            "agent": caller.agent,
            "tenant": caller.tenant,
            "trust_level": caller.trust_level,
            "groups": list(caller.groups),
            "scopes": sorted(caller.scopes),
            "token_id": caller.token_id,
        },
        "call": {
            "tool_version": call.tool.version(str(call.version)),
            "tool_digest": call.tool_digest,
            "mutation_class": call.mutation_class,
            "required_scopes": sorted(call.required_scopes),
            "required_permissions": list(call.required_permissions),
            "tags": list(call.tags),
            "approval_always": call.approval_always,
            "impact_scope": call.impact_scope,
            "arguments_digest": call.arguments_digest,
            "session_id": call.session_id,
            "invocation_id": call.invocation_id,
            "closed_world": call.closed_world,
            "tool_trust": call.tool_trust,
            "tool_trust_age_hours": call.tool_trust_age_hours,
            "tool_stage": call.tool_stage,
            "publisher_verified": call.publisher_verified,
            "tool_health": call.tool_health,
            "result_labels": list(call.result_labels),
            "risk": dict(call.risk),
        },
        "environment": request.environment,
        "granted_by_name": request.granted_by_name,
        "moment": request.time.timestamp(),
        "labels": None if request.labels is None else sorted(request.labels),
        "token_labels": sorted(request.token_labels),
        "session_bound": bool(caller.session_id),
        "label_scopes": label_scopes(request),
        "reads": None if context_fields is None else sorted(context_fields),
    }


def decision_row(decision: Decision) -> dict[str, Any]:
    """Return the decision as JSON."""
    verdict = decision.verdict
    return {
        "outcome": _outcome_row(verdict.outcome),
        "reasons": verdict.reasons,
        "policies": verdict.policies,
        "suggested_updates": [[update.kind, update.value] for update in verdict.suggested_updates],
        "holds": verdict.holds_for_any_arguments,
        "obligations": [[obligation.kind, list(obligation.values)] for obligation in verdict.obligations],
        "labels": verdict.labels,
        "blocked_path": verdict.blocked_path,
        "version": decision.policy_set_version,
        "cacheable": decision.cacheable,
        "decide_time": decision.decide_time.timestamp(),
        "expire_time": decision.expire_time.timestamp(),
        "added_labels": decision.added_labels,
        "cleared_labels": decision.cleared_labels,
        "by_executor": decision.by_executor,
        "follows": decision.follows,
    }


def hidden_part(request: DecisionRequest) -> bytes:
    """Return the arguments and resources, to be sealed."""
    return orjson.dumps({"arguments": request.call.arguments.decode(), "resources": request.call.resources})


def recorded(
    decision_id: str, request: dict[str, Any], answer: dict[str, Any], hidden: bytes | None
) -> RecordedDecision:
    """Parse a row."""
    context_fields = request["reads"]
    return RecordedDecision(
        decision=_decision(decision_id, answer),
        request=_request(request, orjson.loads(hidden) if hidden else {}),
        context_fields=None if context_fields is None else frozenset(ContextField(name) for name in context_fields),
        label_scopes=tuple(request.get("label_scopes", ())),
    )


def _outcome_row(outcome: Outcome) -> dict[str, Any]:
    if isinstance(outcome, Allow):
        return {"kind": "allow"}
    if isinstance(outcome, Deny):
        return {"kind": "deny", "reason": int(outcome.reason)}
    asked = {"approvers": list(outcome.approver_groups), "quorum": outcome.quorum, "policy": outcome.policy}
    return {"kind": "needs_approval", **asked, "reason_required": outcome.reason_required}


def _outcome(row: dict[str, Any]) -> Outcome:
    if row["kind"] == "allow":
        return Allow()
    if row["kind"] == "deny":
        return Deny(Reason(row["reason"]))
    return NeedsApproval(tuple(row["approvers"]), row["quorum"], row["policy"], row.get("reason_required", False))


def _decision(decision_id: str, row: dict[str, Any]) -> Decision:
    verdict = Verdict(
        outcome=_outcome(row["outcome"]),
        reasons=tuple(row["reasons"]),
        policies=tuple(row["policies"]),
        suggested_updates=tuple(SuggestedUpdate(kind, value) for kind, value in row["suggested_updates"]),
        holds_for_any_arguments=row["holds"],
        obligations=tuple(Obligation(kind, tuple(values)) for kind, values in row["obligations"]),
        labels=tuple(row["labels"]),
        blocked_path=row["blocked_path"],
    )
    return Decision(
        name=f"decisions/{decision_id}",
        verdict=verdict,
        policy_set_version=row["version"],
        cacheable=row["cacheable"],
        decide_time=datetime.fromtimestamp(row["decide_time"], UTC),
        expire_time=datetime.fromtimestamp(row["expire_time"], UTC),
        added_labels=tuple(row["added_labels"]),
        cleared_labels=tuple(row.get("cleared_labels", ())),
        by_executor=row.get("by_executor", False),
        follows=row.get("follows", ""),
    )


def _request(row: dict[str, Any], hidden: dict[str, Any]) -> DecisionRequest:
    caller, call, labels = row["caller"], row["call"], row["labels"]
    tool, version = split_version_name(call.pop("tool_version"))
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in call.items()}
    fields["required_scopes"], fields["risk"] = frozenset(fields["required_scopes"]), tuple(call["risk"].items())
    fields["arguments"] = hidden.get("arguments", "").encode()
    fields["resources"] = tuple(hidden.get("resources", ()))
    facts = CallFacts(tool, Version.parse(version), **fields)
    groups, scopes = tuple(caller.pop("groups")), frozenset(caller.pop("scopes"))
    bound = facts.session_id if row.get("session_bound") else ""
    identity = Identity(**caller, groups=groups, scopes=scopes, expires_at=0.0, session_id=bound)
    time = datetime.fromtimestamp(row["moment"], UTC)
    return DecisionRequest(
        identity,
        facts,
        row["environment"],
        time,
        None if labels is None else frozenset(labels),
        row.get("granted_by_name", True),
        frozenset(row.get("token_labels", ())),
    )
