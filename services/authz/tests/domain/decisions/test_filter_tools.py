"""Which tools a caller may use, and decisions about many calls."""

from __future__ import annotations

from typing import Any

import pytest

from libs.common.auth.identity import Grant
from libs.common.errors import Reason
from services.authz.domain.decisions.batch_check import BatchCheck
from services.authz.domain.decisions.filter_tools import FilterTools, Usability
from services.authz.domain.model import Allow, Deny, NeedsApproval, Verdict
from services.authz.tests.deciding import Engine, Entries, Labels, caller_with, check_over, mail


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
async def test_what_may_be_used(outcome: Any, holds: bool, usability: Usability) -> None:
    engine = Engine(verdict=Verdict(outcome, ("because",), holds_for_any_arguments=holds))
    found, version = await FilterTools(check_over(engine))(caller_with(Grant("*")), [mail()])
    assert (found, version) == ([usability], "sha256:1")


async def test_a_tool_that_the_token_does_not_grant_is_never_usable() -> None:
    found, _ = await FilterTools(check_over(Engine()))(caller_with(Grant("acme.*", "^1")), [mail(), mail("2.0.0")])
    assert found == [Usability.ALLOWED, Usability.DENIED]


async def test_a_confined_caller_may_use_what_its_arguments_will_decide_about() -> None:
    caller = caller_with(Grant("acme.*"), resources=("file:*",))
    found, _ = await FilterTools(check_over(Engine()))(caller, [mail()])
    assert found == [Usability.ALLOWED]


async def test_asking_what_may_be_used_leaves_no_trace() -> None:
    labels, journal = Labels(), Entries()
    check = check_over(Engine(), labels=labels, journal=journal)
    await FilterTools(check)(caller_with(Grant("*")), [mail(result_labels=("secret",))])
    assert (labels.present, journal.kept) == (set(), [])


async def test_many_calls_are_decided_under_one_set() -> None:
    check = check_over(Engine(version="sha256:old"))

    class Replaced(Engine):
        """Policies that are replaced while they are asked."""

        def judge(self, question: Any) -> Verdict:
            check.engines.current = Engine(version="sha256:new")  # type: ignore[misc]
            return super().judge(question)

    check.engines.current = Replaced(version="sha256:old")  # type: ignore[misc]
    decisions = await BatchCheck(check)(caller_with(Grant("*")), [mail(), mail("2.0.0")])
    assert [decision.policy_set_version for decision in decisions] == ["sha256:old", "sha256:old"]


async def test_many_calls_are_decided_in_their_order() -> None:
    decisions = await BatchCheck(check_over(Engine()))(
        caller_with(Grant("acme.*", "^1")), [mail("2.0.0"), mail(), mail("3.0.0")]
    )
    assert [type(decision.verdict.outcome) for decision in decisions] == [Deny, Allow, Deny]
    assert len({decision.name for decision in decisions}) == 3
