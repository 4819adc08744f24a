"""Whether a token covers a call: its tool, resources, arguments and session."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.auth.authority import ArgumentConstraint, Grant
from libs.common.auth.constraints import ConstraintChecker, ConstraintError, constraint_cost
from libs.common.auth.coverage import not_covered, outside_session, resource_allowed
from libs.common.auth.identity import Identity
from libs.common.errors import Reason
from libs.common.semver import Version
from libs.common.tool_names import ToolName

SMALL = ArgumentConstraint("core.*", b'{"properties":{"n":{"maximum":5}}}')
ECHO, ONE = ToolName.parse("echo"), Version.parse("1.0.0")
CALL: dict[str, Any] = {"arguments": {"n": 1}, "resources": [], "closed_world": False}


def refusal(identity: Identity, tool: ToolName = ECHO, version: Version = ONE, **changes: Any) -> Any:
    return not_covered(identity, tool, version, satisfies=ConstraintChecker(), **{**CALL, **changes})


def holder(**changes: Any) -> Identity:
    return Identity("did:web:a", "t", 0.0, **{"tools": (Grant("*"),), **changes})


def test_a_tool_that_is_not_granted_is_not_in_the_token() -> None:
    assert refusal(holder()) is None
    assert refusal(holder(tools=(Grant("echo", "^1"),))) is None
    for tools in ((), (Grant("other"),), (Grant("echo", "^2"),), (Grant("acme.echo"),)):
        assert refusal(holder(tools=tools)).reason is Reason.TOOL_NOT_IN_TOKEN


def test_constraints_bind_the_tools_that_they_name() -> None:
    bound = holder(argument_constraints=(SMALL,))
    assert refusal(bound) is None
    refused = refusal(bound, arguments={"n": 6})
    assert (refused.reason, refused.path) == (Reason.AUTHORITY_EXCEEDED, "/n")
    assert refusal(bound, ToolName("acme", "echo"), arguments={"n": 6}) is None
    assert refusal(bound, arguments=None) is None


def test_a_constraint_that_cannot_be_checked_is_not_satisfied() -> None:
    for schema in (b'{"$ref":"https://elsewhere.example/schema"}', b'{"type":7}', b"nonsense"):
        assert refusal(holder(argument_constraints=(ArgumentConstraint("*", schema),))).path == ""
        with pytest.raises(ConstraintError):
            constraint_cost(schema)


def test_confinement_needs_to_know_what_a_call_reaches() -> None:
    confined = holder(resources=("file:/srv/reports/*", "db:main"))
    assert refusal(confined).reason is Reason.AUTHORITY_EXCEEDED
    assert refusal(confined, closed_world=True) is None
    assert refusal(confined, resources=["file:/srv/reports/march", "db:main"]) is None
    assert refusal(confined, resources=["file:/srv/reports/march", "db:other"]).reason is Reason.AUTHORITY_EXCEEDED
    assert refusal(confined, resources=["db:other"], closed_world=True).reason is Reason.AUTHORITY_EXCEEDED
    assert refusal(confined, arguments=None) is None
    assert refusal(holder(), resources=["db:other"]) is None


@pytest.mark.parametrize(
    "resource",
    [
        "file:/srv/../etc/passwd",
        "file:/srv/..",
        "file:/srv/./a",
        "file:..",
        "file:/srv/%2e%2e/etc",
        "file:/srv/%2Fetc",
        "file:/srv/a%252e",
        "file:/srv/..\\etc",
        "file:/srv/a\n",
        "file:/srv/a\x00",
    ],
)
def test_a_name_that_could_lead_elsewhere_is_never_allowed(resource: str) -> None:
    assert not resource_allowed(("*",), resource)


@pytest.mark.parametrize("resource", ["file:/srv/a..b", "file:/srv/...", "file:/srv/.hidden", "https://x.example/a"])
def test_dots_in_ordinary_names_mean_nothing(resource: str) -> None:
    assert resource_allowed(("*",), resource)


@pytest.mark.parametrize(
    ("bound", "named", "outside"),
    [("", "b", False), ("a", "a", False), ("a", "", False), ("a", "b", True)],
)
def test_a_call_in_another_session_is_outside(bound: str, named: str, outside: bool) -> None:
    assert outside_session(holder(session_id=bound), named) is outside
