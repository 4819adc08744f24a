"""Whether a derived token stays within the authority of its parent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from libs.common.auth.authority import (
    ArgumentConstraint,
    Authority,
    Budget,
    Grant,
    exceeded,
)

SMALL = ArgumentConstraint("core.*", b'{"properties":{"n":{"maximum":5}}}')
PARENT = Authority(
    subject="did:web:a",
    tier="user",
    tools=(Grant("arith*", "^1"), Grant("acme.*")),
    scopes=frozenset({"a", "b"}),
    resources=("file:/srv/*",),
    argument_constraints=(SMALL,),
    budget=Budget(calls=10, running_ms=1000),
    depth=2,
    audiences=("toolmesh", "other"),
    not_before=100.0,
    expires_at=200.0,
    tenant="acme",
    trust_level=50,
    groups=("ops", "dev"),
    session_id="s1",
    confirmation="jkt:x",
)
CHILD = replace(PARENT, tier="agent", agent="did:web:bot", depth=1)


def dimensions(**changes: Any) -> list[str]:
    return [violation.path for violation in exceeded(replace(CHILD, **changes), PARENT)]


def test_the_same_again_one_step_down_is_a_subset() -> None:
    assert dimensions() == []


@pytest.mark.parametrize(
    "changes",
    [
        {"tools": (Grant("arith_add", "~1.2"), Grant("acme.mail", "0.0.1-rc.1"))},
        {"tools": (), "scopes": frozenset()},
        {"resources": ("file:/srv/reports/*", "file:/srv/a")},
        {"argument_constraints": (SMALL, ArgumentConstraint("*", b"{}"))},
        {"budget": Budget(calls=0, cost_micros=5, running_ms=1000)},
        {"depth": 0},
        {"audiences": ("other",)},
        {"not_before": 150.0, "expires_at": 151.0},
        {"trust_level": 0, "groups": ()},
        {"confirmation": "x5t#S256:y"},
        {"tier": "invocation", "agent": "", "depth": 0},
    ],
)
def test_less_is_a_subset(changes: dict[str, Any]) -> None:
    assert dimensions(**changes) == []


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"tools": (Grant("*"),)}, "tools[0].tool"),
        ({"tools": (Grant("core.*", "^1"),)}, "tools[0].tool"),
        ({"tools": (Grant("arith*"),)}, "tools[0].version_constraint"),
        ({"tools": (Grant("arith*", "*"),)}, "tools[0].version_constraint"),
        ({"tools": (Grant("acme.x"), Grant("arith_add", "1.0.0-rc.1"))}, "tools[1].version_constraint"),
        ({"scopes": frozenset({"c"})}, "scopes"),
        ({"resources": ()}, "resource_constraints"),
        ({"resources": ("file:/srv/a", "file:/*")}, "resource_constraints[1]"),
        ({"argument_constraints": ()}, "argument_constraints"),
        ({"argument_constraints": (replace(SMALL, tool="*"),)}, "argument_constraints"),
        ({"argument_constraints": (replace(SMALL, schema=b"{}"),)}, "argument_constraints"),
        ({"budget": Budget(calls=11, running_ms=1000)}, "budget.calls"),
        ({"budget": Budget(calls=10)}, "budget.running_ms"),
        ({"depth": 2}, "delegation_depth"),
        ({"depth": -1}, "delegation_depth"),
        ({"audiences": ("third",)}, "audiences"),
        ({"audiences": ()}, "audiences"),
        ({"expires_at": 200.5}, "lifetime"),
        ({"not_before": 99.0}, "not_before"),
        ({"tenant": ""}, "tenant"),
        ({"trust_level": 51}, "trust_level"),
        ({"groups": ("root",)}, "groups"),
        ({"session_id": ""}, "session_id"),
        ({"session_id": "s2"}, "session_id"),
        ({"confirmation": ""}, "confirmation"),
        ({"subject": "did:web:b"}, "subject"),
        ({"tier": "user"}, "tier"),
        ({"tier": "root"}, "tier"),
        ({"tier": "invocation", "depth": 0}, "agent"),
    ],
)
def test_more_is_named(changes: dict[str, Any], path: str) -> None:
    assert dimensions(**changes) == [path]


def test_everything_that_is_exceeded_is_named_at_once() -> None:
    assert dimensions(tools=(Grant("x"),), scopes=frozenset({"z"}), trust_level=99, tenant="b") == [
        *("tools[0].tool", "scopes", "tenant", "trust_level")
    ]


def test_nothing_comes_of_an_invocation_and_an_agent_stays_an_agent() -> None:
    spent = replace(PARENT, tier="invocation")
    assert "tier" in [v.path for v in exceeded(replace(CHILD, tier="invocation", agent="", depth=0), spent)]
    agent = replace(PARENT, tier="agent", agent="did:web:bot")
    assert [v.path for v in exceeded(replace(CHILD, agent=""), agent)] == ["agent"]
    assert exceeded(CHILD, agent) == []


def test_versions_that_are_granted_in_parts_may_be_passed_on_as_one() -> None:
    parent = replace(PARENT, tools=(Grant("echo", "1.x"), Grant("ech*", "2.x")))
    assert exceeded(replace(CHILD, tools=(Grant("echo", ">=1 <3"),)), parent) == []
    assert exceeded(replace(CHILD, tools=(Grant("ech*", ">=1 <3"),)), parent) != []


def test_many_names_are_compared_by_lookup() -> None:
    names = tuple(Grant(f"acme.tool_{n}", "^1") for n in range(256))
    parent = replace(PARENT, tools=names, resources=tuple(f"db:{n}" for n in range(64)))
    child = replace(CHILD, tools=names[::-1], resources=parent.resources[::-1])
    assert exceeded(child, parent) == []


def test_several_grants_of_one_tool_count_as_one() -> None:
    parent = replace(PARENT, tools=tuple(Grant("core.echo", f"{n}.x") for n in range(1, 200)))
    assert exceeded(replace(CHILD, tools=(Grant("echo", "1.x || 7.2"), Grant("echo", "5 - 9"))), parent) == []
    beyond = replace(CHILD, tools=(Grant("echo", "1.x || 200.x"), Grant("echo")))
    paths = [violation.path for violation in exceeded(beyond, parent)]
    assert paths == ["tools[0].version_constraint", "tools[1].version_constraint"]


def test_too_many_patterns_to_compare_are_exceeded() -> None:
    """64 patterns of 512 letters against 20 once took 26 seconds."""
    wide = tuple("*a" * 250 + f"b{n}*" for n in range(20))
    parent = replace(PARENT, resources=wide, tools=tuple(Grant("*a" * 150 + f"b{n}*") for n in range(20)))
    narrow = tuple("a" * 500 + f"*{n}" for n in range(64))
    child = replace(CHILD, resources=narrow, tools=tuple(Grant("a" * 300 + f"*{n}") for n in range(64)))
    assert [violation.path for violation in exceeded(child, parent)] == ["tools", "resource_constraints"]
