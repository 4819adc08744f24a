"""Property tests: slicing and caching do not change decisions, and a decision depends only on its context fields."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import cedarpy
import orjson
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from libs.common.auth.identity import Identity
from libs.common.errors import Reason
from libs.common.semver import Version
from libs.common.telemetry.log import Log
from libs.common.tool_names import ToolName
from services.authz.adapters.cedar.compiler import SCHEMA_FILE, CedarCompiler, PolicySet
from services.authz.adapters.cedar.engine import CedarEngine
from services.authz.adapters.cedar.entities import full_context, principal_entity, resource_entity
from services.authz.domain.model import Allow, CallFacts, ContextField, DecisionRequest, Deny, NeedsApproval
from services.authz.wiring import POLICIES

SILENT = Log("authz", descriptor=2, level="error")
SCHEMA = (POLICIES / SCHEMA_FILE).read_text()
# Cut into as many parts as there can be.
COMPILER = CedarCompiler(SCHEMA, unsliced=0)
FEW = ["a", "b"]

STEADY = [
    'principal.tenant == "{}"',
    '"{}" == principal.tenant',
    'principal.groups.contains("{}")',
    'resource.namespace == "{}"',
    'resource.tags.contains("{}")',
    'context.environment == "{}"',
    "principal.trust_level > 50",
    "resource.closed_world",
    'principal == User::"{}"',
    "principal is Agent",
    'principal.subject == "{}"',
    '{"who": principal}.who.tenant == "{}"',
    # Fails for callers that are trusted more than a little.
    "principal.trust_level * 9223372036854775807 > 0",
]
OF_THE_CALL = [
    'context.session_labels.contains("{}")',
    'context.session_id == "{}"',
    'context.arguments_digest == "{}"',
    'context.arguments.facts.contains("/x={}")',
    'context.arguments.text.hasTag("/x") && context.arguments.text.getTag("/x") like "{}*"',
    'context.arguments.number.hasTag("/n") && context.arguments.number.getTag("/n") > 5',
    'context.resources.contains("{}")',
    "context.time.hour < 12",
    'context.risk.hasTag("{}") && context.risk.getTag("{}") > 1',
    # Fails with a large number.
    'context.arguments.number.hasTag("/n") && context.arguments.number.getTag("/n") * 9223372036854775807 > 0',
]


def leaves() -> st.SearchStrategy[str]:
    texts = st.sampled_from(STEADY + OF_THE_CALL + STEADY)
    return st.builds(lambda text, value: f"({text.replace('{}', value)})", texts, st.sampled_from(FEW))


def conditions() -> st.SearchStrategy[str]:
    return st.recursive(
        leaves(),
        lambda inner: st.one_of(
            st.builds("({} && {})".format, inner, inner),
            st.builds("({} && {})".format, inner, inner),
            st.builds("({} || {})".format, inner, inner),
            st.builds("!{}".format, inner),
            st.builds("(if {} then {} else {})".format, inner, inner, inner),
        ),
        max_leaves=5,
    )


KINDS = {
    "permit": ("allow", ["action", 'action == Action::"invoke"', 'action == Action::"invoke_without_approval"']),
    "deny": ("deny", ['action == Action::"invoke"']),
    "ask": ("needs_approval", ['action == Action::"invoke_without_approval"']),
}


@st.composite
def policy(draw: Any, index: int) -> str:
    kind = draw(st.sampled_from(["permit", "permit", "deny", "ask"]))
    effect, actions = KINDS[kind]
    principal = draw(st.sampled_from(["principal", "principal", 'principal == User::"a"', "principal is Agent"]))
    resource = draw(st.sampled_from(["resource", "resource", 'resource == Tool::"tools/a.pay/versions/1.0.0"']))
    head = f"({principal}, {draw(st.sampled_from(actions))}, {resource})"
    clauses = draw(st.lists(st.tuples(st.sampled_from(["when", "unless"]), conditions()), max_size=2))
    body = " ".join(f"{clause} {{ {condition} }}" for clause, condition in clauses)
    keyword = "permit" if kind == "permit" else "forbid"
    return f'@id("p{index}") @effect("{effect}") @reason("r") {keyword} {head} {body};'


@st.composite
def documents(draw: Any) -> str:
    count = draw(st.integers(1, 10))
    return "\n".join(draw(policy(index)) for index in range(count))


@st.composite
def questions(draw: Any) -> DecisionRequest:
    caller = Identity(
        subject=draw(st.sampled_from(FEW)),
        token_id="t",
        expires_at=0.0,
        tier=draw(st.sampled_from(["user", "agent", "service", "invocation"])),
        agent=draw(st.sampled_from(["", "", *FEW])),
        tenant=draw(st.sampled_from(FEW)),
        groups=tuple(draw(st.lists(st.sampled_from(FEW), unique=True))),
        trust_level=draw(st.sampled_from([0, 1, 60])),
    )
    call = CallFacts(
        ToolName(draw(st.sampled_from(FEW)), "pay"),
        Version.parse("1.0.0"),
        "read_only",
        tags=tuple(draw(st.lists(st.sampled_from(FEW), unique=True))),
        closed_world=draw(st.booleans()),
    )
    return draw(with_facts(DecisionRequest(caller, call, draw(st.sampled_from(FEW)))))


@st.composite
def with_facts(draw: Any, decision_request: DecisionRequest) -> DecisionRequest:
    """The same question with other facts of the one call."""
    arguments = {}
    if draw(st.booleans()):
        arguments["x"] = draw(st.sampled_from(["a", "b", "abc"]))
    if draw(st.booleans()):
        arguments["n"] = draw(st.sampled_from([0, 1, 6.5, 10**15]))
    call = replace(
        decision_request.call,
        arguments=orjson.dumps(arguments),
        arguments_digest=draw(st.sampled_from(FEW)),
        session_id=draw(st.sampled_from(FEW)),
        resources=tuple(draw(st.lists(st.sampled_from(FEW), unique=True))),
        risk=tuple(draw(st.dictionaries(st.sampled_from(FEW), st.integers(0, 3))).items()),
    )
    time = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=draw(st.integers(0, 23)))
    return replace(decision_request, call=call, time=time, labels=frozenset(draw(st.sets(st.sampled_from(FEW)))))


def asked_at_once(text: str, policies: PolicySet, decision_request: DecisionRequest) -> tuple[type, tuple[str, ...]]:
    """The answer of the whole set, worked out in the plainest way."""
    context, facts = full_context(decision_request, frozenset(ContextField))
    principal, resource = principal_entity(decision_request.caller), resource_entity(decision_request.call)
    entities = orjson.dumps([principal, resource, *facts]).decode()
    common = {"principal": principal["uid"], "resource": resource["uid"], "context": context}
    requests = [{**common, "action": {"type": "Action", "id": name}} for name in ("invoke", "invoke_without_approval")]
    run, alone = cedarpy.is_authorized_batch(requests, text, entities, policies.schema)
    if run.diagnostics.errors or alone.diagnostics.errors:
        return Exception, ()

    def named(*results: cedarpy.AuthzResult) -> tuple[str, ...]:
        found = [sorted(int(r.removeprefix("policy")) for r in each.diagnostics.reasons) for each in results]
        return tuple(dict.fromkeys(f"p{number}" for numbers in found for number in numbers))

    if not run.allowed:
        return Deny, named(run)
    return (Allow, named(run, alone)) if alone.allowed else (NeedsApproval, named(alone))


def outcome_of(engine: CedarEngine, decision_request: DecisionRequest) -> tuple[type, tuple[str, ...]]:
    verdict = engine.decide(decision_request)
    failed = verdict.outcome == Deny(Reason.POLICY_ENGINE_ERROR)
    return (Exception if failed else type(verdict.outcome)), verdict.policies


SLOW = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


@SLOW
@given(documents(), st.lists(questions(), min_size=8, max_size=8))
def test_evaluating_slices_equals_evaluating_the_whole_set(text: str, asked: list[DecisionRequest]) -> None:
    policies = COMPILER.compile({"a.cedar": text})
    engine = CedarEngine(policies, SILENT)
    for decision_request in asked:
        assert outcome_of(engine, decision_request) == asked_at_once(text, policies, decision_request)


@SLOW
@given(documents(), questions(), st.data())
def test_an_answer_that_does_not_rest_on_the_call_is_the_same_for_every_call(
    text: str, decision_request: DecisionRequest, data: st.DataObject
) -> None:
    engine = CedarEngine(COMPILER.compile({"a.cedar": text}), SILENT)
    first, context_fields = outcome_of(engine, decision_request), engine.context_fields(decision_request)
    for _ in range(4):
        other = data.draw(with_facts(decision_request))
        assert engine.context_fields(other) == context_fields
        if not context_fields:
            assert outcome_of(engine, other) == first


@SLOW
@given(documents(), questions())
def test_findings_agree_with_the_verdict(text: str, decision_request: DecisionRequest) -> None:
    engine = CedarEngine(COMPILER.compile({"a.cedar": text}), SILENT)
    findings, verdict = engine.findings(decision_request), engine.decide(decision_request)
    failed = any(finding.failed for finding in findings)
    assert failed == (verdict.outcome == Deny(Reason.POLICY_ENGINE_ERROR))
    assert set(verdict.policies) <= {finding.policy for finding in findings if finding.matched}
