"""What policies read of callers and tools, and that Cedar is not asked the same twice."""

from __future__ import annotations

import json
from typing import Any

import cedarpy
import orjson
import pytest
from msgspec.structs import replace

from libs.common.errors import Reason
from libs.common.semver import Version
from libs.common.tool_names import ToolName
from services.authz.adapters.cedar.attribute_usage import EVERYTHING, attributes_read, reading_of
from services.authz.adapters.cedar.engine import CedarEngine
from services.authz.adapters.cedar.entities import asking_of, principal_of, resource_of, telling_of
from services.authz.adapters.cedar.lru_cache import Remembered
from services.authz.domain.model import Allow, Deny, Fact, NeedsApproval, Question
from services.authz.tests.adapters.cedar.test_engine import OVERFLOW, SILENT, question
from services.authz.tests.adapters.cedar.test_slicing import cut
from services.authz.tests.planted import ask, forbid, permit


def parsed(text: str) -> dict[str, Any]:
    (policy,) = orjson.loads(cedarpy.policies_to_json_str(text))["staticPolicies"].values()
    return dict(policy)


def about(condition: str) -> dict[str, Any]:
    return parsed(f"permit (principal, action, resource) when {{ {condition} }};")


def test_everything_that_policies_may_read_has_its_place() -> None:
    asked = question()
    entities = (("principal", principal_of(asked.caller)), ("resource", resource_of(asked.call)))
    attributes = {f"{name}.{each}" for name, entity in entities for each in entity["attrs"]}
    assert attributes | {"principal", "resource", "context"} == EVERYTHING


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
        # By another name, it cannot be told whose attribute it is.
        ('{"a": principal}.a.tenant == "x"', EVERYTHING),
        ('(if resource.closed_world then principal else principal).tenant == "x"', EVERYTHING),
        ("principal.of_a_later_schema", EVERYTHING),
    ],
)
def test_what_a_policy_reads(condition: str, read: set[str]) -> None:
    assert attributes_read(about(condition)) == read


@pytest.mark.parametrize(
    ("scope", "read"),
    [
        ("principal, action, resource", set()),
        ('principal == User::"a", action, resource', {"principal"}),
        ("principal is Agent, action, resource is Tool", {"principal", "resource"}),
    ],
)
def test_whom_a_policy_is_about_is_read_too(scope: str, read: set[str]) -> None:
    assert attributes_read(parsed(f"permit ({scope});")) == read


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
    ("resource.closed_world", {"closed_world": True}),
    ("resource.result_labels", {"result_labels": ("l",)}),
]


@pytest.mark.parametrize(("attribute", "changes"), OTHERS)
def test_a_reading_tells_apart_what_differs_in_what_is_read_and_nothing_else(
    attribute: str, changes: dict[str, Any]
) -> None:
    reading = reading_of(attributes_read(about(f"{attribute} == {attribute}")))
    assert reading(question()) != reading(question(**changes))
    for other, given in OTHERS:
        if other != attribute:
            assert reading(question()) == reading(question(**given))


def tool(name: str = "pay", version: str = "1.2.3") -> Question:
    asked = question()
    return replace(asked, call=replace(asked.call, tool=ToolName("acme", name), version=Version.parse(version)))


def test_names_and_environments_are_told_apart_and_so_are_builds_of_one_version() -> None:
    whose, which = (reading_of(attributes_read(about(f"{each} == {each}"))) for each in ("principal", "resource"))
    assert len({whose(question(subject=each)) for each in ("a", "b")}) == 2
    assert whose(question(tier="agent", agent="a")) != whose(question(tier="agent", agent="b"))
    assert whose(question(tier="agent")) != whose(question()) == whose(question(tier="invocation"))
    behalf = reading_of(attributes_read(about('principal.subject == "a"')))
    assert behalf(question(tier="agent", agent="x", subject="a")) != behalf(
        question(tier="agent", agent="x", subject="b")
    )
    assert behalf(question(tier="agent", agent="x", subject="a")) == behalf(question(subject="a"))
    assert which(tool("pay")) != which(tool("buy"))
    built = reading_of(attributes_read(about('resource.version == "1.2.3+b"')))
    for reading in (which, built):
        assert reading(tool(version="1.2.3+a")) != reading(tool(version="1.2.3+b"))
    where = reading_of(attributes_read(about('context.environment == "prod"')))
    assert where(question("dev")) != where(question("prod"))
    assert built(question("dev")) == built(question("prod"))


def test_policies_are_told_what_they_read_and_nothing_else() -> None:
    told = json.loads(
        telling_of({"principal.tenant", "resource.trust", "resource"})(question(tenant="a", tool_trust=7))
    )
    assert [entity["attrs"] for entity in told] == [{"tenant": "a"}, {"trust": 7}]
    assert json.loads(telling_of(EVERYTHING)(question())) == [
        principal_of(question().caller),
        resource_of(question().call),
    ]
    assert json.loads(telling_of({"principal", "context"})(question())) == []


def test_policies_are_told_who_and_which_only_if_they_read_it() -> None:
    one, other = question("dev", subject="did:web:a"), question("prod", subject="did:web:b", tags=("t",))
    tags = asking_of({"resource.tags"}, ["invoke"])
    assert tags(one) == tags(other)
    caller, tool, place = (asking_of({each}, ["invoke"]) for each in ("principal", "resource", "context"))
    assert caller(one) != caller(other)
    assert caller(one)[0]["principal"] == principal_of(one.caller)["uid"]
    assert tool(one)[0]["resource"] == resource_of(one.call)["uid"]
    assert [json.loads(place(each)[0]["context"]) for each in (one, other)] == [
        {"environment": "dev"},
        {"environment": "prod"},
    ]
    # Whatever they are called, what is told of them is found under that name.
    [request], [entity] = tags(other), json.loads(telling_of({"resource.tags"})(other))
    assert (entity["uid"], entity["attrs"]) == (request["resource"], {"tags": ["t"]})


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every time that Cedar is asked."""
    times: list[Any] = []
    answer = cedarpy.is_authorized_batch

    def counted(*given: Any) -> Any:
        times.append(given)
        return answer(*given)

    monkeypatch.setattr(cedarpy, "is_authorized_batch", counted)
    return times


def test_cedar_is_asked_once_about_questions_that_differ_in_nothing_that_is_read(asked: list[Any]) -> None:
    engine = CedarEngine(cut(permit("all"), forbid("low", "principal.trust_level < 5")), SILENT)
    alike = [question(trust_level=9, subject=who, tags=tags) for who in ("a", "b") for tags in ((), ("x",))]
    verdicts = [engine.judge(each) for each in alike]
    assert [verdict.outcome for verdict in verdicts] == [Allow()] * 4
    # Both policies, each of which reads something else.
    assert len(asked) == 2
    assert engine.judge(question(trust_level=1)).outcome == Deny(Reason.PERMISSION_DENIED)
    # And again only the one that reads what is new.
    assert len(asked) == 3


def test_a_policy_that_becomes_relevant_is_asked_whatever_was_answered_without_it(asked: list[Any]) -> None:
    engine = CedarEngine(cut(permit("all"), ask("money", 'resource.tags.contains("money")')), SILENT)
    assert engine.judge(question(tags=("other",))).outcome == Allow()
    assert isinstance(engine.judge(question(tags=("other", "money"))).outcome, NeedsApproval)
    assert engine.judge(question()).outcome == Allow()
    # What is so whatever the tags are is asked once.
    assert len(asked) == 2


def test_what_rests_on_the_facts_of_one_call_is_asked_for_each(asked: list[Any]) -> None:
    late = forbid("late", "context.time.hour > 17 && resource.impact_scope > 5")
    engine = CedarEngine(cut(permit("all"), late), SILENT)
    hours = [engine.judge(question(impact_scope=6, moment_hour=hour)).outcome for hour in (12, 18, 12)]
    assert hours == [Allow(), Deny(Reason.PERMISSION_DENIED), Allow()]
    # Twice for what is so at any hour, then once for each.
    assert len(asked) == 2 + 3
    assert engine.reads(question(impact_scope=6)) == {Fact.TIME}


def test_a_failure_is_not_remembered(asked: list[Any]) -> None:
    engine = CedarEngine(cut(permit("all"), forbid("erring", OVERFLOW)), SILENT)
    for count in (2, 3):
        assert engine.judge(question(trust_level=60)).outcome == Deny(Reason.POLICY_ENGINE_ERROR)
        assert len(asked) == count


def test_the_memory_is_bounded_and_forgets_the_oldest_first() -> None:
    memory = Remembered[int](size=2)
    for number in range(3):
        memory.keep(number, number)
    assert [memory.find(number) for number in range(3)] == [None, 1, 2]
