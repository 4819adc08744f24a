"""The Cedar engine with the shipped policies and with test policies."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import cedarpy
import orjson
import pytest

from libs.common.auth.identity import Identity
from libs.common.errors import MeshError, Reason
from libs.common.semver import Version
from libs.common.telemetry.log import Log
from libs.common.tool_names import ToolName
from services.authz.adapters.cedar.compiler import load_policies
from services.authz.adapters.cedar.engine import CedarEngine
from services.authz.domain.model import Allow, CallFacts, DecisionRequest, Deny, NeedsApproval, Verdict
from services.authz.tests.policy_texts import ask, forbid, permit, write_policy_set
from services.authz.wiring import POLICIES

ENVIRONMENTS = ("local", "dev", "staging", "prod")
MUTATION_CLASSES = ("read_only", "write_reversible", "write_irreversible")
SILENT = Log("authz", descriptor=2, level="error")


def make_request(environment: str = "local", *, mutation_class: str = "read_only", **given: Any) -> DecisionRequest:
    """Return a request; `given` are fields of the call or attributes of the caller."""
    about_call = set(CallFacts.__struct_fields__)
    moment = datetime(2026, 1, 5, given.pop("moment_hour", 12), tzinfo=UTC)
    labels, named = given.pop("labels", None), given.pop("granted_by_name", True)
    of_token = given.pop("token_labels", ())
    facts = {name: value for name, value in given.items() if name in about_call}
    about_caller = {name: value for name, value in given.items() if name not in about_call}
    caller = Identity(**{"subject": "did:web:a", "token_id": "t", "expires_at": 0.0, **about_caller})
    call = CallFacts(ToolName("acme", "pay"), Version.parse("1.2.3"), mutation_class, **facts)
    held = None if labels is None else frozenset(labels)
    return DecisionRequest(caller, call, environment, moment, held, named, frozenset(of_token))


def make_request_about(mutation_class: str, trust: int, environment: str, impact: int, always: bool) -> DecisionRequest:
    facts = {"impact_scope": impact, "approval_always": always, "trust_level": trust}
    return make_request(environment, mutation_class=mutation_class, **facts)


def person_needed(mutation_class: str, trust: int, environment: str, impact: int, always: bool) -> bool:
    """The approval predicate of the requirements, stated independently of the policies."""
    if always or mutation_class == "write_irreversible":
        return True
    if mutation_class == "read_only":
        return False
    if environment == "prod" and impact >= 7:
        return True
    return trust < 50 or environment == "prod"


def speaking(mutation_class: str, trust: int, environment: str, impact: int, always: bool) -> tuple[str, ...]:
    """The shipped policies that must be named for such a call, in their order."""
    prod, reversible = environment == "prod", mutation_class == "write_reversible"
    asking = {
        "irreversible-writes-need-a-person": mutation_class == "write_irreversible",
        "far-reaching-production-writes-need-a-person": prod and impact >= 7 and mutation_class != "read_only",
        "authors-may-demand-a-person": always,
        "production-writes-need-a-person": reversible and prod,
        "writes-of-little-trusted-callers-need-a-person": reversible and trust < 50,
    }
    free = "trusted-reversible-writes-run-free" if reversible else "reading-runs-free"
    return tuple(name for name, asks in asking.items() if asks) or ("covered-calls-may-run", free)


@pytest.fixture(scope="module")
def shipped() -> CedarEngine:
    return CedarEngine(load_policies(POLICIES), SILENT)


@pytest.mark.parametrize("always", [False, True])
@pytest.mark.parametrize("environment", ENVIRONMENTS)
@pytest.mark.parametrize("mutation_class", MUTATION_CLASSES)
def test_the_shipped_policies_are_the_approval_predicate(
    shipped: CedarEngine, mutation_class: str, environment: str, always: bool
) -> None:
    """Every trust level and every impact scope there is."""
    wrong = []
    for trust in range(101):
        for impact in range(11):
            case = (mutation_class, trust, environment, impact, always)
            verdict = shipped.decide(make_request_about(*case))
            expected = NeedsApproval if person_needed(*case) else Allow
            if type(verdict.outcome) is not expected or verdict.policies != speaking(*case):
                wrong.append((case, verdict))
    assert wrong == []


@pytest.mark.parametrize("health", ["healthy", "degraded", "unavailable"])
@pytest.mark.parametrize("mutation_class", MUTATION_CLASSES)
def test_nobody_is_asked_to_approve_an_irreversible_call_of_a_tool_that_cannot_work(
    shipped: CedarEngine, mutation_class: str, health: str
) -> None:
    verdict = shipped.decide(make_request("prod", mutation_class=mutation_class, tool_health=health))
    waits = mutation_class == "write_irreversible" and health == "unavailable"
    assert isinstance(verdict.outcome, Deny) is waits
    assert ("irreversible-writes-wait-for-a-working-tool" in verdict.policies) is waits


@pytest.mark.parametrize("environment", ENVIRONMENTS)
@pytest.mark.parametrize("mutation_class", MUTATION_CLASSES)
def test_the_permits_alone_allow_no_write_that_needs_approval(
    tmp_path: Path, mutation_class: str, environment: str
) -> None:
    """The permits alone let no write run that the predicate stops."""
    policies = (POLICIES / "default.cedar").read_text().split("\n\n")
    permits = CedarEngine(load_policies(write_policy_set(tmp_path, *(p for p in policies if "permit (" in p))), SILENT)
    for trust in (0, 49, 50, 100):
        for impact in (0, 6, 7, 10):
            case = (mutation_class, trust, environment, impact, False)
            expected = NeedsApproval if person_needed(*case) else Allow
            assert type(permits.decide(make_request_about(*case)).outcome) is expected


def test_an_allow_says_why(shipped: CedarEngine) -> None:
    verdict = shipped.decide(make_request())
    assert verdict.policies == ("covered-calls-may-run", "reading-runs-free")
    assert len(verdict.reasons) == 2
    assert verdict.holds_for_any_arguments


def test_every_policy_that_asks_for_a_person_is_named_and_the_first_names_the_approvers(shipped: CedarEngine) -> None:
    request = make_request("prod", mutation_class="write_irreversible", impact_scope=9, approval_always=True)
    verdict = shipped.decide(request)
    assert verdict.policies == (
        "irreversible-writes-need-a-person",
        "far-reaching-production-writes-need-a-person",
        "authors-may-demand-a-person",
    )
    assert verdict.outcome == NeedsApproval(("approvers",), 1, "irreversible-writes-need-a-person")
    assert len(verdict.reasons) == 3


def test_an_agent_token_is_evaluated_as_an_agent(tmp_path: Path) -> None:
    policies = write_policy_set(tmp_path, permit("agents", "principal is Agent"))
    engine = CedarEngine(load_policies(policies), SILENT)
    assert engine.decide(make_request(tier="agent", agent="did:web:bot")).outcome == Allow()
    assert engine.decide(make_request(tier="invocation", agent="did:web:bot")).outcome == Allow()
    assert isinstance(engine.decide(make_request(tier="invocation")).outcome, Deny)
    assert engine.decide(make_request(tier="user")).outcome == Deny(Reason.PERMISSION_DENIED)


def decide_with(folder: Path, request: DecisionRequest, *policies: str) -> Verdict:
    return CedarEngine(load_policies(write_policy_set(folder, *policies)), SILENT).decide(request)


def test_a_call_without_a_permit_is_denied(tmp_path: Path) -> None:
    verdict = decide_with(tmp_path, make_request(), permit("others", 'principal.tenant == "other"'))
    assert verdict.outcome == Deny(Reason.PERMISSION_DENIED)
    assert verdict.policies == ()
    assert verdict.reasons


def test_a_forbid_wins_over_permits_and_over_approval(tmp_path: Path) -> None:
    verdict = decide_with(tmp_path, make_request(), permit("all"), ask("person"), forbid("never"))
    assert verdict.outcome == Deny(Reason.PERMISSION_DENIED)
    assert (verdict.policies, verdict.reasons) == (("never",), ("never matched.",))


def test_a_permit_to_run_alone_does_not_make_up_for_a_missing_permit_to_run(tmp_path: Path) -> None:
    alone = permit("alone").replace("principal, action,", 'principal, action == Action::"invoke_without_approval",')
    assert decide_with(tmp_path, make_request(), alone).outcome == Deny(Reason.PERMISSION_DENIED)


def test_a_call_that_no_policy_lets_run_alone_needs_a_person(tmp_path: Path) -> None:
    attended = permit("attended").replace("principal, action,", 'principal, action == Action::"invoke",')
    verdict = decide_with(tmp_path, make_request(), attended)
    assert verdict.outcome == NeedsApproval(("approvers",), 1, "")
    assert verdict.reasons


def test_annotations_name_approvers_and_quorum(tmp_path: Path) -> None:
    asking = ask("two-keys", annotations='@approvers("security,legal") @quorum("2")')
    verdict = decide_with(tmp_path, make_request(), permit("all"), asking, ask("later"))
    assert verdict.outcome == NeedsApproval(("security", "legal"), 2, "two-keys")


OVERFLOW = "principal.trust_level * 9223372036854775807 > 0"


@pytest.mark.parametrize("erring", [forbid("erring", OVERFLOW), ask("erring", OVERFLOW), permit("erring", OVERFLOW)])
def test_a_policy_that_errs_denies_though_cedar_alone_would_allow(tmp_path: Path, erring: str) -> None:
    request = make_request(trust_level=60)
    verdict = decide_with(tmp_path, request, permit("all"), erring)
    assert verdict.outcome == Deny(Reason.POLICY_ENGINE_ERROR)
    assert not verdict.holds_for_any_arguments
    assert (
        decide_with(tmp_path, make_request(trust_level=1), permit("all"), permit("erring", OVERFLOW)).outcome == Allow()
    )


def test_a_question_that_cedar_cannot_read_gets_no_decision(shipped: CedarEngine) -> None:
    with pytest.raises(MeshError) as caught:
        shipped.decide(make_request(trust_level=2**63))
    assert caught.value.reason is Reason.POLICY_ENGINE_ERROR


def test_answers_of_policies_that_read_the_session_hold_for_one_call_only(tmp_path: Path) -> None:
    policies = (permit("all"), forbid("session", 'context.session_id == "bad"'))
    assert decide_with(tmp_path, make_request(session_id="bad"), *policies).outcome == Deny(Reason.PERMISSION_DENIED)
    verdict = decide_with(tmp_path, make_request(session_id="good"), *policies)
    assert verdict.outcome == Allow()
    assert not verdict.holds_for_any_arguments


@pytest.mark.parametrize(
    ("condition", "given"),
    [
        ('principal == User::"did:web:a"', {"subject": "did:web:a"}),
        ('principal.tenant == "acme"', {"tenant": "acme"}),
        ("principal.trust_level == 7", {"trust_level": 7}),
        ('principal.groups.contains("ops")', {"groups": ("ops", "dev")}),
        ('principal.scopes.contains("a:b")', {"scopes": frozenset({"a:b"})}),
        ('resource.mutation_class == "write_reversible"', {"mutation_class": "write_reversible"}),
        ('resource.tags.contains("money")', {"tags": ("money",)}),
        ('resource.required_permissions.contains("net:x")', {"required_permissions": ("net:x",)}),
        ("resource.impact_scope == 3", {"impact_scope": 3}),
        ("resource.approval_always", {"approval_always": True}),
        ('context.environment == "staging"', {"environment": "staging"}),
        ("!context.granted_by_name", {"granted_by_name": False}),
        ('context.session_id == "s"', {"session_id": "s"}),
        ('context.arguments_digest == "d"', {"arguments_digest": "d"}),
        ('principal == Service::"did:web:a"', {"tier": "service"}),
        ("principal is Agent", {"tier": "agent"}),
        ("resource.trust == 80", {"tool_trust": 80}),
        ("resource.trust_age_hours == 5", {"tool_trust_age_hours": 5}),
        ('resource.stage == "ga"', {"tool_stage": "ga"}),
        ("resource.publisher_verified", {"publisher_verified": True}),
        ('resource.health == "degraded"', {"tool_health": "degraded"}),
        ("resource.closed_world", {"closed_world": True}),
        ('resource.result_labels.contains("pii")', {"result_labels": ("pii",)}),
        ('context.session_labels.contains("pii")', {"labels": ("pii",)}),
        ('context.token_labels.contains("pii")', {"labels": (), "token_labels": ("pii",)}),
        ('context.resources.contains("file:/x")', {"resources": ("file:/x",), "arguments": b"{}"}),
        ('context.risk.hasTag("score") && context.risk.getTag("score") == 7', {"risk": (("score", 7),)}),
        ("context.time.hour == 3 && context.time.weekday == 1 && context.time.epoch == 1767582000", {"moment_hour": 3}),
        (
            'context.arguments.text.hasTag("/a~1b/0") && context.arguments.text.getTag("/a~1b/0") == "x"',
            {"arguments": b'{"a/b": ["x"]}'},
        ),
        (
            'context.arguments.text.hasTag("/n") && context.arguments.text.getTag("/n") == "null"',
            {"arguments": b'{"n": null}'},
        ),
        (
            'context.arguments.number.hasTag("/n") && context.arguments.number.getTag("/n") == -6',
            {"arguments": b'{"n": -5.2}'},
        ),
        (
            'context.arguments.number.hasTag("/n") && context.arguments.number.getTag("/n") == 9223372036854775807',
            {"arguments": b'{"n": 1e300}'},
        ),
        ('context.arguments.pointers.contains("/o/p")', {"arguments": b'{"o": {"p": {}}}'}),
        (
            'context.arguments.facts.containsAll(["/to/*=a", "/to/*=b", "/ok=true"])',
            {"arguments": b'{"to": ["a", "b"], "ok": true}'},
        ),
    ],
)
def test_policies_read_every_fact(tmp_path: Path, condition: str, given: dict[str, Any]) -> None:
    assert decide_with(tmp_path, make_request(**given), permit("it", condition)).outcome == Allow()
    otherwise = make_request(subject="did:web:b")
    assert decide_with(tmp_path, otherwise, permit("it", condition)).outcome == Deny(Reason.PERMISSION_DENIED)


def test_a_call_with_more_arguments_than_can_be_read_is_denied_by_policies_that_read_them(tmp_path: Path) -> None:
    many = b'{"a": [' + b",".join([b"1"] * 2_001) + b"]}"
    reading = forbid("it", 'context.arguments.facts.contains("/a/*=2")')
    assert decide_with(tmp_path, make_request(arguments=many), permit("all"), reading).outcome == Deny(
        Reason.PERMISSION_DENIED
    )
    assert decide_with(tmp_path, make_request(arguments=many), permit("all")).outcome == Allow()


def test_arguments_that_are_no_json_get_no_decision_where_they_are_read(tmp_path: Path) -> None:
    with pytest.raises(MeshError):
        decide_with(
            tmp_path, make_request(arguments=b"{"), permit("all"), forbid("it", "context.arguments.pointers.isEmpty()")
        )


@pytest.mark.parametrize(
    "condition",
    [
        'resource == Tool::"tools/acme.pay/versions/1.2.3"',
        'resource.namespace == "acme"',
        'resource.tool_id == "pay"',
        'resource.version == "1.2.3"',
    ],
)
def test_policies_read_the_name_of_the_tool(tmp_path: Path, condition: str) -> None:
    assert decide_with(tmp_path, make_request(), permit("it", condition)).outcome == Allow()
    assert decide_with(tmp_path, make_request(), forbid("it", condition)).outcome == Deny(Reason.PERMISSION_DENIED)


def test_a_call_with_too_many_arguments_is_denied_and_can_be_explained(tmp_path: Path) -> None:
    reading = 'context.arguments.text.hasTag("/a")'
    engine = CedarEngine(load_policies(write_policy_set(tmp_path, permit("open"), forbid("reads", reading))), SILENT)
    crowded = make_request(arguments=orjson.dumps({"many": list(range(3_000))}))
    assert engine.decide(crowded).outcome == Deny(Reason.PERMISSION_DENIED)
    found = {finding.policy: (finding.matched, finding.failed) for finding in engine.findings(crowded)}
    assert found == {"open": (True, False), "reads": (False, True)}


@pytest.mark.parametrize("written", [b"7", b"7.0", b"7e0", b"0.7e1", b"70e-1"])
def test_equal_numbers_have_the_same_text(tmp_path: Path, written: bytes) -> None:
    seven = 'context.arguments.facts.contains("/level=7") && context.arguments.text.getTag("/level") == "7"'
    guarded = f'context.arguments.text.hasTag("/level") && {seven}'
    engine = CedarEngine(load_policies(write_policy_set(tmp_path, permit("open"), forbid("seven", guarded))), SILENT)
    assert engine.decide(make_request(arguments=b'{"level": ' + written + b"}")).policies == ("seven",)


def test_explaining_asks_many_policies_at_once_and_still_names_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = [forbid(f"r{index}", f'context.arguments.facts.contains("/x={index}")') for index in range(100)]
    plain = [permit(f"p{index}", f"principal.trust_level == {index}") for index in range(100)]
    erring = forbid("erring", f'context.arguments.pointers.contains("/x") && {OVERFLOW}')
    engine = CedarEngine(load_policies(write_policy_set(tmp_path, *plain, *reading, erring)), SILENT)
    batches: list[int] = []

    def counted(requests: Any, *given: Any) -> Any:
        batches.append(len(requests))
        return original(requests, *given)

    original = cedarpy.is_authorized_batch
    monkeypatch.setattr(cedarpy, "is_authorized_batch", counted)
    found = engine.findings(make_request(trust_level=7, arguments=b'{"x": 42}'))
    assert [each.policy for each in found if each.matched] == ["p7", "r42"]
    assert [each.policy for each in found if each.failed] == ["erring"]
    assert len(found) == 201
    # Only where one fails are its neighbours asked again, by halves.
    assert len(batches) < 20
