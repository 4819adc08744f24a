"""Converts the messages of PolicyService."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.authz.v1 import authz_service_pb2 as authz_pb
from toolmesh.authz.v1 import policy_service_pb2 as pb

from libs.common.call_context import Call
from services.authz.convert.authz import call_facts, decision_message, obligation_messages, subject_facts
from services.authz.domain.model import DecisionRequest, LabelSource, Verdict, outcome_word
from services.authz.domain.policies.model import (
    DecisionFlip,
    Explanation,
    PolicyFinding,
    PolicyProblem,
    PolicyQuestion,
    PolicySetChange,
    ReplayProgress,
    StoredPolicySet,
)

_KINDS = {
    "user": authz_pb.PRINCIPAL_KIND_USER,
    "agent": authz_pb.PRINCIPAL_KIND_AGENT,
    "service": authz_pb.PRINCIPAL_KIND_SERVICE,
}


def change_of(request: pb.PutPolicyRequest | pb.ValidatePolicyRequest | pb.AskPolicySetRequest) -> PolicySetChange:
    """Parse the change of a policy set."""
    documents = {document.name: document.text for document in request.documents}
    return PolicySetChange(documents, tuple(request.removed), number_of(request.base))


def number_of(name: str) -> int | None:
    """Parse the number of a policy set; None for an empty name and for the active set."""
    number = name.removeprefix("policySets/")
    return int(number) if number.isascii() and number.isdecimal() else None


def actor_name(call: Call) -> str:
    """Return the actor of a call: a DID, or the mesh name of a peer."""
    return call.identity.actor if call.identity is not None else call.peer


def set_message(stored: StoredPolicySet) -> pb.PolicySet:
    """Build the message of a policy set."""
    message = pb.PolicySet(
        name=stored.name,
        version=stored.version,
        documents=[pb.PolicyDocument(name=name, text=text) for name, text in stored.documents.items()],
        policy_count=stored.policy_count,
        comment=stored.comment,
        put_by=stored.put_by,
        put_time=_timestamp(stored.put_time),
        active=stored.active,
    )
    if stored.activate_time is not None:
        message.activate_time.CopyFrom(_timestamp(stored.activate_time))
    return message


def problem_messages(problems: Iterable[PolicyProblem]) -> list[pb.PolicyProblem]:
    """Build the messages of problems."""
    return [
        pb.PolicyProblem(
            document=problem.document,
            line=problem.line,
            column=problem.column,
            policy=problem.policy,
            rule=problem.rule,
            message=problem.message,
        )
        for problem in problems
    ]


def explanation_message(explanation: Explanation) -> pb.ExplainDecisionResponse:
    """Build the response of an explanation, without the arguments."""
    request = explanation.recorded.request
    return pb.ExplainDecisionResponse(
        decision=decision_message(explanation.recorded.decision),
        call=_call_message(request),
        subject=_subject_message(request),
        environment=request.environment,
        session_labels=sorted(request.labels or ()),
        findings=[_finding_message(finding) for finding in explanation.findings],
        summary=explanation.summary,
        label_sources=[
            _source_message(source, explanation.recorded.label_scopes[0]) for source in explanation.label_sources
        ],
    )


def progress_message(progress: ReplayProgress) -> pb.ReplayPolicySetResponse:
    """Build the message of a replay's progress."""
    return pb.ReplayPolicySetResponse(
        replayed=progress.replayed,
        total=progress.total,
        flips=[_flip_message(flip) for flip in progress.flips],
        undecidable=progress.undecidable,
    )


def question_of(question: pb.PolicyQuestion) -> PolicyQuestion:
    """Parse a question."""
    return PolicyQuestion(
        subject=subject_facts(question.subject),
        call=call_facts(question.call),
        labels=frozenset(question.session_labels),
        environment=question.environment,
        time=question.time.ToDatetime(tzinfo=UTC) if question.HasField("time") else None,
        granted_by_wildcard=question.granted_by_wildcard,
        token_labels=frozenset(question.token_labels),
        session_bound=question.session_bound,
    )


def answer_message(question: PolicyQuestion, verdict: Verdict) -> pb.PolicyAnswer:
    """Build the answer to a question. A call that is not denied adds the labels of its tool and of its policies."""
    outcome = outcome_word(verdict.outcome)
    labels = {*question.call.result_labels, *verdict.labels} if outcome != "deny" else set[str]()
    return pb.PolicyAnswer(
        outcome=outcome,
        reasons=verdict.reasons,
        determining_policies=verdict.policies,
        obligations=obligation_messages(verdict),
        added_labels=sorted(labels - question.labels),
    )


def _call_message(request: DecisionRequest) -> authz_pb.CallFacts:
    call = request.call
    return authz_pb.CallFacts(
        tool_version=call.tool.version(str(call.version)),
        tool_digest=call.tool_digest,
        mutation_class=call.mutation_class,
        required_scopes=sorted(call.required_scopes),
        required_permissions=call.required_permissions,
        tags=call.tags,
        approval_always=call.approval_always,
        impact_scope=call.impact_scope,
        arguments_digest=call.arguments_digest,
        session_id=call.session_id,
        invocation_id=call.invocation_id,
        closed_world=call.closed_world,
        tool_trust=call.tool_trust,
        tool_trust_age_hours=call.tool_trust_age_hours,
        tool_stage=call.tool_stage,
        publisher_verified=call.publisher_verified,
        tool_health=call.tool_health,
        result_labels=call.result_labels,
        risk=dict(call.risk),
    )


def _subject_message(request: DecisionRequest) -> authz_pb.SubjectFacts:
    caller = request.caller
    return authz_pb.SubjectFacts(
        subject=caller.actor,
        kind=_KINDS[caller.kind],
        on_behalf_of=caller.subject if caller.subject != caller.actor else "",
        tenant=caller.tenant,
        trust_level=caller.trust_level,
        groups=caller.groups,
        scopes=sorted(caller.scopes),
    )


def _finding_message(finding: PolicyFinding) -> pb.PolicyFinding:
    return pb.PolicyFinding(
        policy=finding.policy,
        effect=finding.effect,
        matched=finding.matched,
        failed=finding.failed,
        reason=finding.reason,
        document=finding.document,
        line=finding.line,
    )


def _source_message(source: LabelSource, session: str) -> pb.LabelSource:
    return pb.LabelSource(
        label=source.label,
        add_time=_timestamp(source.added_at),
        decision=source.decision,
        tool_version=source.tool_version,
        invocation_id=source.invocation_id,
        other_session=source.place != session,
    )


def _flip_message(flip: DecisionFlip) -> pb.Flip:
    return pb.Flip(
        decision=flip.decision,
        subject=flip.subject,
        tool_version=flip.tool_version,
        before=flip.before,
        after=flip.after,
        determining_policies=flip.policies,
    )


def _timestamp(time: datetime) -> Timestamp:
    timestamp = Timestamp()
    timestamp.FromDatetime(time)
    return timestamp
