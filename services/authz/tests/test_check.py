"""What a token covers, and how a verdict becomes a decision; without policies."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from libs.common.auth.identity import Grant, Identity
from libs.common.clock import ManualClock
from libs.common.errors import Reason
from libs.common.names import ToolName
from libs.common.semver import Version
from services.authz.domain.check import Check
from services.authz.domain.model import Allow, CallFacts, Decision, Deny, NeedsApproval, Question, Verdict

NOW = datetime(2026, 1, 1, tzinfo=UTC)
YES = Verdict(Allow(), ("because",), ("p1",))


@dataclass
class Engine:
    """A PolicyEngine that always says the same and remembers what it was asked."""

    verdict: Verdict = YES
    version: str = "sha256:1"
    asked: list[Question] = field(default_factory=list)

    def judge(self, question: Question) -> Verdict:
        self.asked.append(question)
        return self.verdict


@pytest.fixture
def engine() -> Engine:
    return Engine()


def decide(engine: Engine, *grants: Grant, version: str = "1.2.3", ttl: int = 60, **facts: Any) -> Decision:
    caller = Identity("did:web:a", "t1", NOW.timestamp() + 300, scopes=frozenset({"mail:send"}), tools=grants)
    call = CallFacts(ToolName("acme", "send_email"), Version.parse(version), "read_only", **facts)
    return Check(engine, ManualClock(NOW), "dev", timedelta(seconds=ttl))(caller, call)


@pytest.mark.parametrize(
    ("pattern", "constraint", "version"),
    [
        ("*", "", "1.2.3"),
        ("acme.*", "", "1.2.3"),
        ("acme.send*", "^1.2", "1.2.3"),
        ("acme.send_email", "1.2.3", "1.2.3"),
        # Empty means any version, which includes prereleases; a range does not.
        ("*", "", "2.0.0-rc.1"),
        ("*", "2.0.0-rc.1", "2.0.0-rc.1"),
    ],
)
def test_a_covered_call_goes_to_policy(engine: Engine, pattern: str, constraint: str, version: str) -> None:
    decision = decide(engine, Grant(pattern, constraint), version=version)
    assert decision.verdict == YES
    assert [question.environment for question in engine.asked] == ["dev"]


@pytest.mark.parametrize(
    ("pattern", "constraint", "version"),
    [
        ("send_email", "", "1.2.3"),
        ("core.*", "", "1.2.3"),
        ("acme.send", "", "1.2.3"),
        ("acme.send_email", "^2", "1.2.3"),
        ("acme.send_email", "1.2.4", "1.2.3"),
        ("*", "^2", "2.0.0-rc.1"),
    ],
)
def test_a_call_beyond_the_token_never_reaches_policy(
    engine: Engine, pattern: str, constraint: str, version: str
) -> None:
    decision = decide(engine, Grant(pattern, constraint), version=version)
    assert decision.verdict.outcome == Deny(Reason.TOOL_NOT_IN_TOKEN)
    assert [(u.kind, u.value) for u in decision.verdict.suggested_updates] == [("tool", "acme.send_email")]
    assert decision.cacheable
    assert engine.asked == []


def test_a_token_without_grants_covers_nothing(engine: Engine) -> None:
    assert decide(engine).verdict.outcome == Deny(Reason.TOOL_NOT_IN_TOKEN)


def test_one_covering_grant_among_others_is_enough(engine: Engine) -> None:
    assert decide(engine, Grant("acme.*", "^9"), Grant("echo"), Grant("acme.*", "1.x")).verdict == YES


def test_missing_scopes_are_named_each(engine: Engine) -> None:
    decision = decide(engine, Grant("*"), required_scopes=frozenset({"z:z", "a:a", "mail:send"}))
    assert decision.verdict.outcome == Deny(Reason.SCOPE_MISSING)
    assert [(u.kind, u.value) for u in decision.verdict.suggested_updates] == [("scope", "a:a"), ("scope", "z:z")]
    assert decision.cacheable
    assert engine.asked == []


def test_a_decision_is_named_dated_and_bound_to_the_policies(engine: Engine) -> None:
    first, second = decide(engine, Grant("*")), decide(engine, Grant("*"))
    assert first.name.startswith("decisions/")
    assert first.name != second.name
    assert (first.policy_set_version, first.decide_time) == ("sha256:1", NOW)
    assert first.expire_time == NOW + timedelta(seconds=60)


def test_a_decision_never_outlives_the_token(engine: Engine) -> None:
    assert decide(engine, Grant("*"), ttl=3600).expire_time == NOW + timedelta(seconds=300)


@pytest.mark.parametrize(
    ("outcome", "holds", "cacheable"),
    [
        (Allow(), True, True),
        (Allow(), False, False),
        (Deny(Reason.PERMISSION_DENIED), True, True),
        (Deny(Reason.PERMISSION_DENIED), False, False),
        (NeedsApproval(("approvers",), 1, "p"), True, False),
    ],
)
def test_what_may_be_reused(engine: Engine, outcome: Any, holds: bool, cacheable: bool) -> None:
    engine.verdict = Verdict(outcome, ("because",), holds_for_any_arguments=holds)
    assert decide(engine, Grant("*")).cacheable is cacheable
