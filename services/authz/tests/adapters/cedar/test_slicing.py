"""Which slices of a policy set are evaluated."""

from __future__ import annotations

import pytest

from libs.common.errors import Reason
from libs.common.telemetry.log import Log
from services.authz.adapters.cedar.compiler import SCHEMA_FILE, CedarCompiler, PolicySet, compiler_for
from services.authz.adapters.cedar.engine import CedarEngine
from services.authz.domain.model import Allow, ContextField, Deny
from services.authz.tests.adapters.cedar.test_engine import OVERFLOW, make_request
from services.authz.tests.policy_texts import forbid, permit
from services.authz.wiring import POLICIES

SILENT = Log("authz", descriptor=2, level="error")


def cut(*policies: str) -> PolicySet:
    return CedarCompiler((POLICIES / SCHEMA_FILE).read_text(), unsliced=0).compile({"a.cedar": "\n".join(policies)})


def asked(policies: PolicySet, **given: object) -> set[str]:
    """The policies that a question is put to."""
    put = make_request(**given)  # type: ignore[arg-type]
    return {
        policies.policies[name].annotations.id for one in policies.static.relevant(put) for name in one.names.values()
    }


def test_a_question_is_put_only_to_policies_that_could_speak_to_it() -> None:
    policies = cut(
        permit("all"),
        forbid("ours", 'principal.tenant == "ours" && resource.impact_scope > 1'),
        forbid("theirs", 'principal.tenant == "theirs"'),
        forbid("money", 'resource.impact_scope > 1 && resource.tags.contains("money")'),
        forbid("alice", 'principal == User::"did:web:alice"'),
        forbid("either", 'principal.tenant == "theirs" || resource.tags.contains("money")'),
        forbid("not", '!(principal.tenant == "ours")'),
    )
    always = {"all", "either", "not"}
    assert asked(policies) == always
    assert asked(policies, tenant="ours") == always | {"ours"}
    assert asked(policies, tenant="theirs", tags=("money", "x")) == always | {"theirs", "money"}
    assert asked(policies, subject="did:web:alice") == always | {"alice"}


def test_the_demand_that_the_fewest_share_tells_policies_apart() -> None:
    both = 'principal.tenant == "ours" && resource.namespace == "n{}"'
    policies = cut(permit("all"), *(forbid(f"f{index}", both.format(index)) for index in range(50)))
    assert asked(policies, tenant="ours") == {"all"}


@pytest.mark.parametrize(
    "condition", [f'{OVERFLOW} && principal.tenant == "x"', f'!({OVERFLOW}) && principal.tenant == "x"']
)
def test_a_policy_that_may_fail_before_its_key_is_always_evaluated(condition: str) -> None:
    policies = cut(permit("all"), forbid("erring", condition))
    assert asked(policies) == {"all", "erring"}
    verdict = CedarEngine(policies, SILENT).decide(make_request(trust_level=60))
    assert verdict.outcome == Deny(Reason.POLICY_ENGINE_ERROR)


def test_a_policy_that_may_fail_only_behind_its_demand_is_not() -> None:
    policies = cut(permit("all"), forbid("erring", f'principal.tenant == "x" && {OVERFLOW}'))
    assert asked(policies) == {"all"}
    engine = CedarEngine(policies, SILENT)
    assert engine.decide(make_request(trust_level=60)).outcome == Allow()
    assert engine.decide(make_request(trust_level=60, tenant="x")).outcome == Deny(Reason.POLICY_ENGINE_ERROR)


LABEL = 'context.session_labels.contains("x")'
TIME = "context.time.hour < 12"
ARGUMENT = 'context.arguments.facts.contains("/a=1")'


@pytest.mark.parametrize(
    ("condition", "given", "context_fields"),
    [
        ('context.environment == "prod"', {}, set()),
        (LABEL, {}, {ContextField.LABELS}),
        (f'{LABEL} && principal.tenant == "x"', {}, set()),
        (f'{LABEL} && principal.tenant == "x"', {"tenant": "x"}, {ContextField.LABELS}),
        (f'principal.tenant == "x" && {LABEL}', {}, set()),
        (f'principal.tenant == "x" || {LABEL}', {"tenant": "x"}, {ContextField.LABELS}),
        (f'!({LABEL}) && principal.tenant == "x"', {"tenant": "x"}, {ContextField.LABELS}),
        (f'!({LABEL} || principal.tenant == "x")', {"tenant": "x"}, set()),
        (f'if principal.tenant == "x" then {LABEL} else {TIME}', {}, {ContextField.LABELS, ContextField.TIME}),
        (f'if principal.tenant == "x" then {LABEL} else false', {}, set()),
        (
            f'(if {TIME} then {ARGUMENT} else false) && principal.tenant == "x"',
            {"tenant": "x"},
            {ContextField.TIME, ContextField.ARGUMENTS},
        ),
        ('context.session_id == "s"', {}, {ContextField.SESSION}),
        ('["a"].contains(context.arguments_digest)', {}, {ContextField.DIGEST}),
        ('context.resources.contains("file:x")', {}, {ContextField.ARGUMENTS}),
        ('context.risk.hasTag("a") && context.risk.getTag("a") > 1', {}, {ContextField.RISK}),
        ("context == context", {}, set(ContextField)),
        ('{"session_id": resource.version}.session_id == "1"', {}, set()),
        # It may fail for other arguments, whatever stands behind it.
        (
            'context.risk.hasTag("a") && context.risk.getTag("a") * 9223372036854775807 > 0 && principal.tenant == "x"',
            {},
            {ContextField.RISK},
        ),
    ],
)
def test_an_answer_rests_only_on_facts_that_could_matter_to_this_caller_and_tool(
    condition: str, given: dict[str, object], context_fields: set[ContextField]
) -> None:
    for effect in (permit, forbid):
        engine = CedarEngine(cut(permit("all"), effect("it", condition)), SILENT)
        put = make_request(**given)  # type: ignore[arg-type]
        assert engine.context_fields(put) == context_fields
        assert engine.decide(put).holds_for_any_arguments is not bool(context_fields)


def test_many_policies_are_cut_and_few_are_not() -> None:
    compiler = compiler_for(POLICIES)
    few, many = (
        compiler.compile({"a.cedar": "\n".join(forbid(f"p{i}", f'principal.tenant == "t{i}"') for i in range(count))})
        for count in (10, 100)
    )
    assert (len(few.static.slices), len(many.static.slices)) == (1, 100)
