"""Between the contract of policy sets and the domain. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from google.protobuf.timestamp_pb2 import Timestamp
from toolmesh.authz.v1 import authz_service_pb2 as authz_pb
from toolmesh.authz.v1 import policy_service_pb2 as pb

from libs.common.call_context import Call
from services.authz.convert.authz import decision_message
from services.authz.domain.model import Question
from services.authz.domain.policies.model import Change, Explanation, Finding, Flip, Problem, Progress, StoredSet

_KINDS = {
    "user": authz_pb.PRINCIPAL_KIND_USER,
    "agent": authz_pb.PRINCIPAL_KIND_AGENT,
    "service": authz_pb.PRINCIPAL_KIND_SERVICE,
}


def change_of(request: pb.PutPolicyRequest | pb.ValidatePolicyRequest) -> Change:
    """Read what to make of a set."""
    documents = {document.name: document.text for document in request.documents}
    return Change(documents, tuple(request.removed), number_of(request.base))


def number_of(name: str) -> int | None:
    """Read the number of a set; None for none, and for the active one."""
    number = name.removeprefix("policySets/")
    return int(number) if number.isascii() and number.isdecimal() else None


def by_whom(call: Call) -> str:
    """Name who asks: a DID, or the mesh name of a peer."""
    return call.identity.actor if call.identity is not None else call.peer


def set_message(stored: StoredSet) -> pb.PolicySet:
    """Render a set."""
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


def problem_messages(problems: Iterable[Problem]) -> list[pb.PolicyProblem]:
    """Render what is wrong."""
    return [
        pb.PolicyProblem(
            document=each.document,
            line=each.line,
            column=each.column,
            policy=each.policy,
            rule=each.rule,
            message=each.message,
        )
        for each in problems
    ]


def explanation_message(explanation: Explanation) -> pb.ExplainDecisionResponse:
    """Render an explanation, without the arguments."""
    question = explanation.recorded.question
    return pb.ExplainDecisionResponse(
        decision=decision_message(explanation.recorded.decision),
        call=_call_message(question),
        subject=_subject_message(question),
        environment=question.environment,
        session_labels=sorted(question.labels or ()),
        findings=[_finding_message(each) for each in explanation.findings],
        summary=explanation.summary,
    )


def progress_message(progress: Progress) -> pb.ReplayPolicySetResponse:
    """Render how far a replay has come."""
    return pb.ReplayPolicySetResponse(
        replayed=progress.replayed,
        total=progress.total,
        flips=[_flip_message(each) for each in progress.flips],
        undecidable=progress.undecidable,
    )


def _call_message(question: Question) -> authz_pb.CallFacts:
    call = question.call
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
        result_labels=call.result_labels,
        risk=dict(call.risk),
    )


def _subject_message(question: Question) -> authz_pb.SubjectFacts:
    caller = question.caller
    return authz_pb.SubjectFacts(
        subject=caller.actor,
        kind=_KINDS[caller.kind],
        on_behalf_of=caller.subject if caller.subject != caller.actor else "",
        tenant=caller.tenant,
        trust_level=caller.trust_level,
        groups=caller.groups,
        scopes=sorted(caller.scopes),
    )


def _finding_message(finding: Finding) -> pb.PolicyFinding:
    return pb.PolicyFinding(
        policy=finding.policy,
        effect=finding.effect,
        matched=finding.matched,
        failed=finding.failed,
        reason=finding.reason,
        document=finding.document,
        line=finding.line,
    )


def _flip_message(flip: Flip) -> pb.Flip:
    return pb.Flip(
        decision=flip.decision,
        subject=flip.subject,
        tool_version=flip.tool_version,
        before=flip.before,
        after=flip.after,
        determining_policies=flip.policies,
    )


def _timestamp(moment: datetime) -> Timestamp:
    stamp = Timestamp()
    stamp.FromDatetime(moment)
    return stamp
