"""Limits: parsing, matching rules, buckets and budgets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from libs.common.auth.identity import Ancestor, Authority, Budget, Grant
from services.authz.convert.authz import decision_message
from services.authz.domain.decisions.limits import (
    LimitsError,
    UncountableArgumentError,
    limits_for,
    parse_limits,
    price_of,
)
from services.authz.domain.model import Deny, Limit, Verdict
from services.authz.tests.decision_fakes import Engine, caller_with, check_over, mail

RULE = {"id": "r", "window_seconds": 60, "calls": 5}


def limits_of(*rules: dict[str, Any], prices: Any = ()) -> Any:
    return parse_limits(json.dumps({"limits": list(rules), "prices": list(prices)}))


def test_without_rules_and_budgets_nothing_is_counted() -> None:
    assert limits_for(parse_limits("{}"), caller_with(), mail()) == ()
    assert price_of(parse_limits("{}"), mail()) == 0


@pytest.mark.parametrize(
    ("per", "bucket"),
    [
        ([], "limit:r"),
        (["caller"], "limit:r/caller:did:web:a"),
        (["tool"], "limit:r/tool:acme.send_email"),
        (["tenant", "tool"], "limit:r/tenant:t/tool:acme.send_email"),
        (["namespace"], "limit:r/namespace:acme"),
        (["agent", "session"], "limit:r/agent:did:web:bot/session:t/s"),
    ],
)
def test_calls_are_grouped_into_buckets_by_the_dimensions_of_a_rule(per: list[str], bucket: str) -> None:
    caller = caller_with(tenant="t", agent="did:web:bot")
    [limit] = limits_for(limits_of({**RULE, "per": per}), caller, mail(session_id="s"))
    assert limit == Limit(bucket, window_seconds=60, max_calls=5, source="r")


PER_RECIPIENT = {**RULE, "per": ["tenant", "argument"], "argument": "/to"}


def recipients(arguments: str, rule: dict[str, Any] = PER_RECIPIENT) -> list[str]:
    limits = limits_for(limits_of(rule), caller_with(tenant="t"), mail(arguments=arguments.encode()))
    return [limit.bucket for limit in limits]


def test_each_recipient_has_a_bucket() -> None:
    [ann] = recipients('{"to": "ann@example.com"}')
    assert ann.startswith("limit:r/tenant:t/argument:")
    assert "ann" not in ann.removeprefix("limit:r/tenant:t/")
    [bob] = recipients('{"to": "bob@example.com"}')
    assert ann != bob
    # Neither a list nor the way it is written gives a recipient a bucket of its own.
    for same in ('["ann@example.com", "bob@example.com"]', '[{"mail": " ANN@example.com"}, "bob@example.com", null]'):
        assert recipients(f'{{"to": {same}}}') == [ann, bob]
    every = {**PER_RECIPIENT, "argument": "/mails/*/to"}
    assert recipients('{"mails": [{"to": "ann@example.com"}, {"to": "bob@example.com"}]}', every) == [ann, bob]


@pytest.mark.parametrize("arguments", ["", "{}", '{"to": null}', '{"to": []}', '{"other": "ann@example.com"}'])
def test_a_call_without_the_argument_cannot_be_counted(arguments: str) -> None:
    with pytest.raises(UncountableArgumentError):
        recipients(arguments)


def test_a_call_is_counted_by_some_recipients_and_not_by_many() -> None:
    assert len(recipients(json.dumps({"to": [f"{number}@example.com" for number in range(32)]}))) == 32
    with pytest.raises(UncountableArgumentError):
        recipients(json.dumps({"to": [f"{number}@example.com" for number in range(33)]}))


async def test_a_decision_with_such_a_limit_holds_for_these_arguments() -> None:
    check = check_over(Engine(limits=limits_of({**PER_RECIPIENT, "tools": ["acme.send_email"]})))
    caller = caller_with(Grant("*"), tenant="t")
    counted = await check.decide(caller, mail(arguments=b'{"to": "a"}'))
    assert (len(counted.limits), counted.cacheable) == (1, False)
    refused = await check.decide(caller, mail(arguments=b"{}"))
    assert isinstance(refused.verdict.outcome, Deny)
    assert (refused.verdict.blocked_path, refused.cacheable) == ("/to", False)
    other = check_over(Engine(limits=limits_of({**PER_RECIPIENT, "tools": ["acme.other"]})))
    assert (await other.decide(caller, mail(arguments=b"{}"))).cacheable


def test_sessions_of_two_tenants_are_two_whatever_they_are_called() -> None:
    rules = limits_of({**RULE, "per": ["session"]})
    named = [("t", "s"), ("u", "s"), ("", "t/s"), ("t/s", ""), ("t", "/s"), ("t/", "s")]
    buckets = [limits_for(rules, caller_with(tenant=tenant), mail(session_id=session)) for tenant, session in named]
    assert len(set(buckets)) == len(named)


@pytest.mark.parametrize(
    ("whom", "bound"),
    [
        ({"tools": ["acme.*"]}, True),
        ({"tools": ["send_email"]}, False),
        ({"tools": ["echo", "*"]}, True),
        ({"callers": ["did:web:*"]}, True),
        ({"callers": ["did:web"]}, False),
        ({"callers": ["*:a", "x"]}, True),
        ({"callers": ["did:*b"]}, False),
        # Everything but the asterisk stands for itself.
        ({"callers": ["did.web.a"]}, False),
        ({"callers": ["did:web:[a]"]}, False),
        ({"tenants": ["t"], "agents": ["did:web:bot*"]}, True),
        ({"tenants": ["t"], "agents": ["nobody"]}, False),
    ],
)
def test_whom_a_rule_bounds(whom: dict[str, Any], bound: bool) -> None:
    caller = caller_with(tenant="t", agent="did:web:bot1")
    assert bool(limits_for(limits_of({**RULE, **whom}), caller, mail())) is bound


def test_a_pattern_of_many_wildcards_is_matched_in_linear_time() -> None:
    rule = {**RULE, "callers": ["*a" * 200 + "b"]}
    assert limits_for(limits_of(rule), caller_with(subject="a" * 500), mail()) == ()


def test_the_first_price_that_matches_holds() -> None:
    prices = [
        {"tools": ["echo"], "cost_micros": 1},
        {"tools": ["acme.*"], "cost_micros": 7},
        {"tools": ["*"], "cost_micros": 9},
    ]
    assert price_of(limits_of(prices=prices), mail()) == 7


def test_a_call_counts_in_the_budgets_of_its_token_and_all_ancestors() -> None:
    def ancestor(token_id: str, budget: Budget) -> Ancestor:
        authority = Authority(subject="did:web:a", tier="user", budget=budget, expires_at=900)
        return Ancestor("did:web:a", token_id, "k", 0, authority)

    lineage = (ancestor("root", Budget(calls=9, running_ms=1500)), ancestor("middle", Budget()))
    caller = caller_with(lineage=lineage, budget=Budget(calls=2, cost_micros=0), expires_at=500.0)
    assert limits_for(parse_limits("{}"), caller, mail()) == (
        Limit("token:root", max_calls=9, max_running_seconds=1.5, expires_at=900, source="token:root"),
        Limit("token:t1", max_calls=2, max_cost_micros=0, expires_at=500, source="token:t1"),
    )


@pytest.mark.parametrize(
    ("text", "line", "rule"),
    [
        ("{", 1, "syntax"),
        ('{"limits": [\n  {"id": "a",}\n]}', 2, "syntax"),
        ('{"a": 1, "a": 2}', 1, "syntax"),
        ('{"limits": NaN}', 1, "syntax"),
        ("[]", 1, "type"),
        ('{"limit": []}', 1, "unknown"),
        ('{"limits": {}}', 1, "type"),
        ('{"limits": [\n\n 5]}', 3, "type"),
        ('{"prices": [{"tools": ["*"], "cost_micros": 1},\n{"tools": ["*"]}]}', 2, "required"),
        ('{"prices": [{"tools": [], "cost_micros": 1}]}', 1, "type"),
        ('{"prices": [\n{"tools": ["*"], "cost_micros": 1}],\n"limits": [\n{"id": "a", "concurrent": -1}]}', 4, "type"),
        ('{"limits": [{"id": "a", "concurrent": 1},\n{"id": "a", "concurrent": 1}]}', 2, "unique"),
        ('{"limits": [{"id": "a"}]}', 1, "required"),
        ('{"limits": [{"concurrent": 1}]}', 1, "required"),
        ('{"limits": [{"id": "a", "calls": 1}]}', 1, "required"),
        ('{"limits": [{"id": "a", "concurrent": true}]}', 1, "type"),
        ('{"limits": [{"id": "a", "concurrent": 1.5}]}', 1, "type"),
        ('{"limits": [{"id": "a", "concurrent": 9007199254740992}]}', 1, "type"),
        ('{"limits": [{"id": "A b", "concurrent": 1}]}', 1, "type"),
        ('{"limits": [{"id": "a", "calls": 1, "window_seconds": 0}]}', 1, "type"),
        ('{"limits": [{"id": "a", "concurrent": 1, "per": ["caller", "caller"]}]}', 1, "type"),
        ('{"limits": [{"id": "a", "concurrent": 1, "per": ["moon"]}]}', 1, "type"),
        ('{"limits": [{"id": "a", "concurrent": 1, "tools": ["A*"]}]}', 1, "type"),
        ('{"limits": [{"id": "a", "concurrent": 1, "callers": "x"}]}', 1, "type"),
        ('{"limits": [{"id": "a", "concurrent": 1, "window": 5}]}', 1, "unknown"),
        ('{"limits": [{"id": "a", "concurrent": 1, "per": ["argument"]}]}', 1, "required"),
        ('{"limits": [{"id": "a", "concurrent": 1, "argument": "/to"}]}', 1, "required"),
        ('{"limits": [{"id": "a", "concurrent": 1, "per": ["argument"], "argument": "to"}]}', 1, "type"),
    ],
)  # fmt: skip
def test_problems_of_limits_have_line_and_column(text: str, line: int, rule: str) -> None:
    with pytest.raises(LimitsError) as caught:
        parse_limits(text)
    problem = caught.value.problems[-1]
    assert (problem.line, problem.rule) == (line, rule)
    assert problem.column >= 1


def test_everything_that_is_wrong_is_named_at_once() -> None:
    with pytest.raises(LimitsError) as caught:
        parse_limits('{"limits": [{"id": "a", "calls": -1, "x": 1}, 5], "y": 1}')
    assert {problem.rule for problem in caught.value.problems} == {"unknown", "type", "required"}


async def test_the_decision_of_an_allowed_call_lists_its_limits() -> None:
    limits = limits_of({**RULE, "concurrent": 2}, prices=[{"tools": ["*"], "cost_micros": 3}])
    decision = await check_over(Engine(limits=limits)).decide(
        caller_with(Grant("*"), budget=Budget(running_ms=250)), mail()
    )
    message = decision_message(decision)
    assert [limit.bucket for limit in message.limits] == ["limit:r", "token:t1"]
    assert (message.limits[0].window.seconds, message.limits[0].max_calls, message.limits[0].max_concurrent) == (
        60,
        5,
        2,
    )
    assert not message.limits[0].HasField("max_cost_micros")
    assert message.limits[1].max_running_time.ToMilliseconds() == 250
    assert message.limits[1].HasField("expire_time")
    assert message.cost_micros == 3


async def test_a_denied_call_carries_nothing_to_count() -> None:
    engine = Engine(verdict=Verdict(Deny(7), ("no",)), limits=limits_of(RULE))  # type: ignore[arg-type]
    assert (await check_over(engine).decide(caller_with(Grant("*")), mail())).limits == ()
