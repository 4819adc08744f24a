"""A token that does not name a tool learns nothing about it."""

from __future__ import annotations

import pytest

from libs.common.auth.authority import Grant
from libs.common.errors import MeshError, Reason
from services.executor.domain import errors
from services.executor.domain.resolve_granted import resolve_granted
from services.executor.domain.tool import VersionIdentity
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


def test_a_holder_of_the_grant_is_told_that_there_is_no_such_tool() -> None:
    assert refusal("nay", Grant("nay")).reason is Reason.TOOL_NOT_FOUND


def test_a_stale_catalog_is_told_to_all() -> None:
    assert refusal("say", failure=errors.catalog_stale()).reason is Reason.SERVICE_UNAVAILABLE
