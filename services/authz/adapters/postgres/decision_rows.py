"""Decisions and their questions as JSON, and back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson

from libs.common.auth.identity import Identity
from libs.common.errors import Reason
from libs.common.semver import Version
from libs.common.tool_names import split_version_name
from services.authz.domain.model import (
    Allow,
    CallFacts,
    Decision,
    Deny,
    Fact,
    NeedsApproval,
    Obligation,
    Outcome,
    Question,
    SuggestedUpdate,
    Verdict,
)
from services.authz.domain.policies.model import Recorded


def question_row(question: Question, reads: frozenset[Fact] | None) -> dict[str, Any]:
    """Everything that policy read, but not the arguments and what was made of them."""
    caller, call = question.caller, question.call
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
            "result_labels": list(call.result_labels),
            "risk": dict(call.risk),
        },
        "environment": question.environment,
        "moment": question.moment.timestamp(),
        "labels": None if question.labels is None else sorted(question.labels),
        "reads": None if reads is None else sorted(reads),
    }


def answer_row(decision: Decision) -> dict[str, Any]:
    """The decision, as it was answered."""
    verdict = decision.verdict
    return {
        "outcome": _outcome_row(verdict.outcome),
        "reasons": verdict.reasons,
        "policies": verdict.policies,
        "suggested_updates": [[each.kind, each.value] for each in verdict.suggested_updates],
        "holds": verdict.holds_for_any_arguments,
        "obligations": [[each.kind, list(each.values)] for each in verdict.obligations],
        "labels": verdict.labels,
        "blocked_path": verdict.blocked_path,
        "version": decision.policy_set_version,
        "cacheable": decision.cacheable,
        "decide_time": decision.decide_time.timestamp(),
        "expire_time": decision.expire_time.timestamp(),
        "added_labels": decision.added_labels,
    }


def hidden_part(question: Question) -> bytes:
    """The arguments and what was made of them, to be sealed."""
    return orjson.dumps({"arguments": question.call.arguments.decode(), "resources": question.call.resources})


def recorded(decision_id: str, question: dict[str, Any], answer: dict[str, Any], hidden: bytes | None) -> Recorded:
    """Read what was kept."""
    reads = question["reads"]
    return Recorded(
        decision=_decision(decision_id, answer),
        question=_question(question, orjson.loads(hidden) if hidden else {}),
        reads=None if reads is None else frozenset(Fact(each) for each in reads),
    )


def _outcome_row(outcome: Outcome) -> dict[str, Any]:
    if isinstance(outcome, Allow):
        return {"kind": "allow"}
    if isinstance(outcome, Deny):
        return {"kind": "deny", "reason": int(outcome.reason)}
    asked = {"approvers": list(outcome.approver_groups), "quorum": outcome.quorum, "policy": outcome.policy}
    return {"kind": "needs_approval", **asked}


def _outcome(row: dict[str, Any]) -> Outcome:
    if row["kind"] == "allow":
        return Allow()
    if row["kind"] == "deny":
        return Deny(Reason(row["reason"]))
    return NeedsApproval(tuple(row["approvers"]), row["quorum"], row["policy"])


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
    )


def _question(row: dict[str, Any], hidden: dict[str, Any]) -> Question:
    caller, call, labels = row["caller"], row["call"], row["labels"]
    tool, version = split_version_name(call.pop("tool_version"))
    given: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in call.items()}
    given["required_scopes"], given["risk"] = frozenset(given["required_scopes"]), tuple(call["risk"].items())
    given["arguments"] = hidden.get("arguments", "").encode()
    given["resources"] = tuple(hidden.get("resources", ()))
    facts = CallFacts(tool, Version.parse(version), **given)
    groups, scopes = tuple(caller.pop("groups")), frozenset(caller.pop("scopes"))
    identity = Identity(**caller, groups=groups, scopes=scopes, expires_at=0.0)
    moment = datetime.fromtimestamp(row["moment"], UTC)
    return Question(identity, facts, row["environment"], moment, None if labels is None else frozenset(labels))
