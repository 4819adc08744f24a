"""A token that does not name a tool learns nothing about it."""

from __future__ import annotations

import pytest

from libs.common.auth.authority import Grant
from libs.common.errors import MeshError, Reason
from libs.common.semver import Constraint, Version
from services.executor.domain import errors
from services.executor.domain.phases.resolve_granted import resolve_granted
from services.executor.domain.tool import Tool, VersionIdentity
from services.executor.tests.fakes import KnownTools
from services.executor.tests.samples import a_caller, a_request, a_tool

TOOL = a_tool()


def refusal(tool: str, *grants: Grant, failure: Exception | None = None) -> MeshError:
    view = KnownTools(TOOL)
    view.failure = failure
    with pytest.raises(MeshError) as caught:
        resolve_granted(view, a_request(tool=tool, caller=a_caller(grants=grants)))
    return caught.value


@pytest.mark.parametrize("grant", [Grant("*"), Grant("core.say"), Grant("s*", ">=1.0.0")])
def test_a_tool_that_the_token_names_is_resolved(grant: Grant) -> None:
    assert resolve_granted(KnownTools(TOOL), a_request(caller=a_caller(grants=(grant,)))) is TOOL


@pytest.mark.parametrize("grants", [(), (Grant("other"),), (Grant("acme.*"),)])
def test_a_missing_tool_and_one_that_is_not_granted_look_the_same(grants: tuple[Grant, ...]) -> None:
    existing, missing = refusal("say", *grants), refusal("nay", *grants)
    assert existing.reason is missing.reason is Reason.TOOL_NOT_IN_TOKEN
    assert (existing.metadata, missing.metadata) == ({"tool": "say"}, {"tool": "nay"})
    assert (existing.message, existing.retry_after) == (missing.message, missing.retry_after)


def test_a_tool_that_is_unavailable_looks_the_same_too() -> None:
    hidden = refusal("say", failure=errors.tool_unavailable(VersionIdentity(TOOL.name, TOOL.digest), "quarantined"))
    assert (hidden.reason, hidden.metadata) == (Reason.TOOL_NOT_IN_TOKEN, {"tool": "say"})


def test_a_version_that_is_not_granted_is_refused() -> None:
    assert refusal("say", Grant("say", "<1.0.0")).reason is Reason.TOOL_NOT_IN_TOKEN


def test_a_holder_of_the_grant_learns_that_there_is_no_such_tool() -> None:
    assert refusal("nay", Grant("nay")).reason is Reason.TOOL_NOT_FOUND


def test_a_stale_catalog_is_announced_to_all() -> None:
    assert refusal("say", failure=errors.catalog_stale()).reason is Reason.SERVICE_UNAVAILABLE


class Versions:
    """A view of one tool in several versions."""

    def __init__(self, *numbers: str, broken: str = "") -> None:
        self._tools = {number: a_tool(version=number, name=f"tools/core.say/versions/{number}") for number in numbers}
        self._broken = broken

    def resolve(self, reference: str, constraint: str) -> Tool:
        accepts = Constraint.parse(constraint).means
        number = max((n for n in self._tools if accepts(Version.parse(n))), key=Version.parse, default="")
        if not number or number == self._broken:
            raise errors.version_not_found(reference, constraint)
        return self._tools[number]


@pytest.mark.parametrize("version", ["", "latest"])
@pytest.mark.parametrize("broken", ["", "2.0.0"])
def test_a_call_without_a_version_gets_the_highest_that_is_granted(version: str, broken: str) -> None:
    view = Versions("1.0.0", "1.1.0", "2.0.0", broken=broken)
    asked = a_request(version=version, caller=a_caller(grants=(Grant("say", "1.0.0"), Grant("say", "^1"))))
    assert resolve_granted(view, asked).version == "1.1.0"


def test_a_version_that_the_call_names_is_not_replaced() -> None:
    asked = a_request(version="2.0.0", caller=a_caller(grants=(Grant("say", "^1"),)))
    with pytest.raises(MeshError) as caught:
        resolve_granted(Versions("1.1.0", "2.0.0"), asked)
    assert caught.value.reason is Reason.TOOL_NOT_IN_TOKEN
