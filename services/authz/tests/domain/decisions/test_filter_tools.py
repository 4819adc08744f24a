"""FilterTools and BatchCheck."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.auth.identity import Grant
from libs.common.errors import Reason
from services.authz.domain.decisions.batch_check import BatchCheck
from services.authz.domain.decisions.filter_tools import FilterTools, Usability
from services.authz.domain.model import Allow, Deny, NeedsApproval, Verdict
from services.authz.tests.decision_fakes import Engine, FakeJournal, FakeLabels, caller_with, check_over, mail


@pytest.mark.parametrize(
    ("outcome", "holds", "usability"),
    [
        (Allow(), True, Usability.ALLOWED),
        (NeedsApproval(("a",), 1, "p"), True, Usability.NEEDS_APPROVAL),
        (Deny(Reason.PERMISSION_DENIED), True, Usability.DENIED),
        # With other arguments it may be allowed, and the call will be asked about.
        (Deny(Reason.PERMISSION_DENIED), False, Usability.ALLOWED),
        (Deny(Reason.POLICY_ENGINE_ERROR), False, Usability.DENIED),
    ],
)
async def test_filter_tools_maps_outcomes_to_usability(outcome: Any, holds: bool, usability: Usability) -> None:
    engine = Engine(verdict=Verdict(outcome, ("because",), holds_for_any_arguments=holds))
    found, version = await FilterTools(check_over(engine)).execute(caller_with(Grant("*")), [mail()])
    assert (found, version) == ([usability], "sha256:1")


async def test_a_tool_that_the_token_does_not_grant_is_never_usable() -> None:
    found, _ = await FilterTools(check_over(Engine())).execute(
        caller_with(Grant("acme.*", "^1")), [mail(), mail("2.0.0")]
    )
    assert found == [Usability.ALLOWED, Usability.DENIED]


async def test_filter_tools_allows_tools_whose_arguments_decide() -> None:
    caller = caller_with(Grant("acme.*"), resources=("file:*",))
    found, _ = await FilterTools(check_over(Engine())).execute(caller, [mail()])
    assert found == [Usability.ALLOWED]


async def test_filter_tools_records_nothing_and_adds_no_labels() -> None:
    labels, journal = FakeLabels(), FakeJournal()
    check = check_over(Engine(), labels=labels, journal=journal)
    await FilterTools(check).execute(caller_with(Grant("*")), [mail(result_labels=("secret",))])
    assert (labels.present, journal.entries) == (set(), [])


async def test_many_calls_are_decided_under_one_set() -> None:
    check = check_over(Engine(version="sha256:old"))

    class Replaced(Engine):
        """Policies that are replaced while they are asked."""

        def decide(self, request: Any) -> Verdict:
            check.engines.current = Engine(version="sha256:new")  # type: ignore[misc]
            return super().decide(request)

    check.engines.current = Replaced(version="sha256:old")  # type: ignore[misc]
    decisions = await BatchCheck(check).execute(caller_with(Grant("*")), [mail(), mail("2.0.0")])
    assert [decision.policy_set_version for decision in decisions] == ["sha256:old", "sha256:old"]


async def test_many_calls_are_decided_in_their_order() -> None:
    decisions = await BatchCheck(check_over(Engine())).execute(
        caller_with(Grant("acme.*", "^1")), [mail("2.0.0"), mail(), mail("3.0.0")]
    )
    assert [type(decision.verdict.outcome) for decision in decisions] == [Deny, Allow, Deny]
    assert len({decision.name for decision in decisions}) == 3
