"""Attributes that policies read, and the caches that rely on them."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import cedarpy
import msgspec
import orjson
import pytest
from msgspec.structs import replace

from libs.common.errors import Reason
from libs.common.semver import Version
from libs.common.tool_names import ToolName
from services.authz.adapters.cedar import engine as engine_module
from services.authz.adapters.cedar.attribute_usage import ALL_ATTRIBUTES, attributes_used, cache_key_for
from services.authz.adapters.cedar.engine import CedarEngine
from services.authz.adapters.cedar.entities import entities_builder, principal_entity, requests_builder, resource_entity
from services.authz.domain.model import Allow, ContextField, DecisionRequest, Deny, NeedsApproval
from services.authz.tests.adapters.cedar.test_engine import OVERFLOW, SILENT, make_request
from services.authz.tests.adapters.cedar.test_slicing import cut
from services.authz.tests.policy_texts import ask, forbid, permit


def parsed(text: str) -> dict[str, Any]:
    (policy,) = orjson.loads(cedarpy.policies_to_json_str(text))["staticPolicies"].values()
    return dict(policy)


def about(condition: str) -> dict[str, Any]:
    return parsed(f"permit (principal, action, resource) when {{ {condition} }};")


def test_all_entity_attributes_have_request_fields() -> None:
    request = make_request()
    entities = (("principal", principal_entity(request.caller)), ("resource", resource_entity(request.call)))
    attributes = {f"{name}.{each}" for name, entity in entities for each in entity["attrs"]}
    assert attributes | {"principal", "resource", "context"} == ALL_ATTRIBUTES


@pytest.mark.parametrize(
    ("condition", "read"),
    [
        ("true", set()),
        ('context.environment == "prod"', {"context"}),
        ('principal.tenant == "a" && resource.trust > 3', {"principal.tenant", "resource.trust"}),
        ('"a" == principal.tenant || !resource.closed_world', {"principal.tenant", "resource.closed_world"}),
        ('resource.tags.containsAny(["a"]) || resource.version like "1.*"', {"resource.tags", "resource.version"}),
        ("if principal has groups then true else false", {"principal.groups"}),
        ('principal == User::"a"', {"principal"}),
        ('[User::"a"].contains(principal) && resource is Tool', {"principal", "resource"}),
        ('principal in User::"a"', {"principal"}),
        ('{"a": principal.tenant}.a == "x"', {"principal.tenant"}),
        ('{"Var": resource.tool_id, ".": principal.tenant}.Var == "x"', {"principal.tenant", "resource.tool_id"}),
        # The owner of the attribute is an alias.
        ('{"a": principal}.a.tenant == "x"', ALL_ATTRIBUTES),
        ('(if resource.closed_world then principal else principal).tenant == "x"', ALL_ATTRIBUTES),
        ("principal.of_a_later_schema", ALL_ATTRIBUTES),
    ],
)
def test_attributes_used_by_conditions(condition: str, read: set[str]) -> None:
    assert attributes_used(about(condition)) == read


@pytest.mark.parametrize(
    ("scope", "read"),
    [
        ("principal, action, resource", set()),
        ('principal == User::"a", action, resource', {"principal"}),
        ("principal is Agent, action, resource is Tool", {"principal", "resource"}),
    ],
)
def test_attributes_used_by_the_scope(scope: str, read: set[str]) -> None:
    assert attributes_used(parsed(f"permit ({scope});")) == read


OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("principal.tenant", {"tenant": "other"}),
    ("principal.trust_level", {"trust_level": 7}),
    ("principal.groups", {"groups": ("g",)}),
    ("principal.scopes", {"scopes": frozenset({"s"})}),
    ("resource.mutation_class", {"mutation_class": "write_reversible"}),
    ("resource.required_permissions", {"required_permissions": ("p",)}),
    ("resource.tags", {"tags": ("t",)}),
    ("resource.impact_scope", {"impact_scope": 3}),
    ("resource.approval_always", {"approval_always": True}),
    ("resource.trust", {"tool_trust": 3}),
    ("resource.trust_age_hours", {"tool_trust_age_hours": 3}),
    ("resource.stage", {"tool_stage": "beta"}),
    ("resource.publisher_verified", {"publisher_verified": True}),
    ("resource.health", {"tool_health": "degraded"}),
    ("resource.closed_world", {"closed_world": True}),
    ("resource.result_labels", {"result_labels": ("l",)}),
]


@pytest.mark.parametrize(("attribute", "changes"), OTHERS)
def test_a_cache_key_depends_on_the_used_attributes_only(attribute: str, changes: dict[str, Any]) -> None:
    reading = cache_key_for(attributes_used(about(f"{attribute} == {attribute}")))
    assert reading(make_request()) != reading(make_request(**changes))
    for other, given in OTHERS:
        if other != attribute:
            assert reading(make_request()) == reading(make_request(**given))


def tool(name: str = "pay", version: str = "1.2.3") -> DecisionRequest:
    request = make_request()
    return replace(request, call=replace(request.call, tool=ToolName("acme", name), version=Version.parse(version)))


def test_cache_keys_distinguish_uids_environments_and_builds_of_a_version() -> None:
    whose, which = (cache_key_for(attributes_used(about(f"{each} == {each}"))) for each in ("principal", "resource"))
    assert len({whose(make_request(subject=each)) for each in ("a", "b")}) == 2
    assert whose(make_request(tier="agent", agent="a")) != whose(make_request(tier="agent", agent="b"))
    assert whose(make_request(tier="agent")) != whose(make_request()) == whose(make_request(tier="invocation"))
    behalf = cache_key_for(attributes_used(about('principal.subject == "a"')))
    assert behalf(make_request(tier="agent", agent="x", subject="a")) != behalf(
        make_request(tier="agent", agent="x", subject="b")
    )
    assert behalf(make_request(tier="agent", agent="x", subject="a")) == behalf(make_request(subject="a"))
    assert which(tool("pay")) != which(tool("buy"))
    built = cache_key_for(attributes_used(about('resource.version == "1.2.3+b"')))
    for reading in (which, built):
        assert reading(tool(version="1.2.3+a")) != reading(tool(version="1.2.3+b"))
    where = cache_key_for(attributes_used(about('context.environment == "prod"')))
    assert where(make_request("dev")) != where(make_request("prod"))
    assert built(make_request("dev")) == built(make_request("prod"))
    named = cache_key_for(attributes_used(about("context.granted_by_name")))
    assert named(make_request()) != named(make_request(granted_by_name=False))
    bound = cache_key_for(attributes_used(about("context.session_bound")))
    assert bound(make_request()) != bound(bound_request())


def bound_request() -> DecisionRequest:
    caller = dataclasses.replace(make_request().caller, session_id="s")
    return msgspec.structs.replace(make_request(), caller=caller)


def test_entities_have_only_the_used_attributes() -> None:
    entities = json.loads(
        entities_builder({"principal.tenant", "resource.trust", "resource"})(make_request(tenant="a", tool_trust=7))
    )
    assert [entity["attrs"] for entity in entities] == [{"tenant": "a"}, {"trust": 7}]
    assert json.loads(entities_builder(ALL_ATTRIBUTES)(make_request())) == [
        principal_entity(make_request().caller),
        resource_entity(make_request().call),
    ]
    assert json.loads(entities_builder({"principal", "context"})(make_request())) == []


def test_requests_have_uids_only_if_policies_use_them() -> None:
    one, other = make_request("dev", subject="did:web:a"), make_request("prod", subject="did:web:b", tags=("t",))
    tags = requests_builder({"resource.tags"}, ["invoke"])
    assert tags(one) == tags(other)
    caller, tool, environment = (requests_builder({each}, ["invoke"]) for each in ("principal", "resource", "context"))
    assert caller(one) != caller(other)
    assert caller(one)[0]["principal"] == principal_entity(one.caller)["uid"]
    assert tool(one)[0]["resource"] == resource_entity(one.call)["uid"]
    assert [json.loads(environment(each)[0]["context"]) for each in (one, other)] == [
        {"environment": "dev", "granted_by_name": True, "session_bound": False},
        {"environment": "prod", "granted_by_name": True, "session_bound": False},
    ]
    # The request refers to the entity by the same UID.
    [request], [entity] = tags(other), json.loads(entities_builder({"resource.tags"})(other))
    assert (entity["uid"], entity["attrs"]) == (request["resource"], {"tags": ["t"]})


@pytest.fixture
def evaluations(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Record every evaluation by Cedar."""
    recorded: list[Any] = []
    evaluate = cedarpy.is_authorized_batch

    def record(*arguments: Any) -> Any:
        recorded.append(arguments)
        return evaluate(*arguments)

    monkeypatch.setattr(cedarpy, "is_authorized_batch", record)
    return recorded


def test_cedar_evaluates_once_for_requests_with_equal_used_attributes(evaluations: list[Any]) -> None:
    engine = CedarEngine(cut(permit("all"), forbid("low", "principal.trust_level < 5")), SILENT)
    alike = [make_request(trust_level=9, subject=who, tags=tags) for who in ("a", "b") for tags in ((), ("x",))]
    verdicts = [engine.decide(each) for each in alike]
    assert [verdict.outcome for verdict in verdicts] == [Allow()] * 4
    # One evaluation for each policy, because they use different attributes.
    assert len(evaluations) == 2
    assert engine.decide(make_request(trust_level=1)).outcome == Deny(Reason.PERMISSION_DENIED)
    # Only the policy that uses the changed attribute is evaluated again.
    assert len(evaluations) == 3


def test_a_newly_relevant_policy_is_evaluated_despite_cached_responses(evaluations: list[Any]) -> None:
    engine = CedarEngine(cut(permit("all"), ask("money", 'resource.tags.contains("money")')), SILENT)
    assert engine.decide(make_request(tags=("other",))).outcome == Allow()
    assert isinstance(engine.decide(make_request(tags=("other", "money"))).outcome, NeedsApproval)
    assert engine.decide(make_request()).outcome == Allow()
    # The policy that does not use tags is evaluated once.
    assert len(evaluations) == 2


def test_policies_that_read_the_context_are_evaluated_for_each_call(evaluations: list[Any]) -> None:
    late = forbid("late", "context.time.hour > 17 && resource.impact_scope > 5")
    engine = CedarEngine(cut(permit("all"), late), SILENT)
    hours = [engine.decide(make_request(impact_scope=6, moment_hour=hour)).outcome for hour in (12, 18, 12)]
    assert hours == [Allow(), Deny(Reason.PERMISSION_DENIED), Allow()]
    # Two static evaluations, then one for each call.
    assert len(evaluations) == 2 + 3
    assert engine.context_fields(make_request(impact_scope=6)) == {ContextField.TIME}


def test_a_failure_is_not_remembered(evaluations: list[Any]) -> None:
    engine = CedarEngine(cut(permit("all"), forbid("erring", OVERFLOW)), SILENT)
    for count in (2, 3):
        assert engine.decide(make_request(trust_level=60)).outcome == Deny(Reason.POLICY_ENGINE_ERROR)
        assert len(evaluations) == count


def test_the_caches_of_an_engine_are_bounded(monkeypatch: pytest.MonkeyPatch, evaluations: list[Any]) -> None:
    monkeypatch.setattr(engine_module, "_CACHE_SIZE", 2)
    engine = CedarEngine(cut(permit("all", "principal.trust_level > 5")), SILENT)
    for trust_level in (1, 2, 3, 3, 1):
        engine.decide(make_request(trust_level=trust_level))
    # The repeated 3 is cached, and the 1 was evicted.
    assert len(evaluations) == 4
