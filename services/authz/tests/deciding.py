"""Fakes at the ports of Check, and a Check over them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from libs.common.auth.identity import Grant, Identity
from libs.common.runtime.clock import ManualClock
from libs.common.semver import Version
from libs.common.tool_names import ToolName
from services.authz.domain.decisions.check import Check
from services.authz.domain.decisions.limits import Limits
from services.authz.domain.model import Allow, CallFacts, Decision, Fact, Question, Verdict
from services.authz.domain.ports import PolicyEngine

NOW = datetime(2026, 1, 1, tzinfo=UTC)
YES = Verdict(Allow(), ("because",), ("p1",))


@dataclass
class Engine:
    """A PolicyEngine that always says the same and remembers what it was asked."""

    verdict: Verdict = YES
    version: str = "sha256:1"
    limits: Limits = Limits()
    facts: frozenset[Fact] = frozenset()
    asked: list[Question] = field(default_factory=list)

    def reads(self, question: Question) -> frozenset[Fact]:
        return self.facts

    def judge(self, question: Question) -> Verdict:
        self.asked.append(question)
        return self.verdict

    def consider(self, question: Question) -> Considered:
        return Considered(self, question)


@dataclass
class Considered:
    """A Consideration that leaves everything to its engine."""

    engine: Engine
    question: Question

    @property
    def reads(self) -> frozenset[Fact]:
        return self.engine.reads(self.question)

    def verdict(self, labels: frozenset[str] | None) -> Verdict:
        return self.engine.judge(replace(self.question, labels=labels))


@dataclass
class Fixed:
    """Engines of which one is current until the test says otherwise."""

    current: PolicyEngine


@dataclass
class Labels:
    """SessionLabels of one session."""

    present: set[str] = field(default_factory=set)

    async def of(self, question: Question) -> frozenset[str]:
        return frozenset(self.present)

    async def add(self, question: Question, labels: Iterable[str]) -> tuple[str, ...]:
        added = tuple(sorted(set(labels) - self.present))
        self.present.update(added)
        return added


@dataclass
class Entries:
    """A Journal in memory."""

    kept: list[tuple[Decision, Question, frozenset[Fact] | None]] = field(default_factory=list)

    def record(self, decision: Decision, question: Question, reads: frozenset[Fact] | None) -> None:
        self.kept.append((decision, question, reads))


def unsatisfied(schema: bytes, arguments: Any) -> str | None:
    """A checker that finds fault with everything, at /x."""
    return "/x"


def check_over(
    engine: PolicyEngine, *, ttl: int = 60, labels: Labels | None = None, journal: Entries | None = None
) -> Check:
    """Return a Check in dev."""
    return Check(
        engines=Fixed(engine),
        labels=labels or Labels(),
        journal=journal or Entries(),
        satisfies=unsatisfied,
        clock=ManualClock(NOW),
        environment="dev",
        ttl=timedelta(seconds=ttl),
    )


def caller_with(*grants: Grant, **changes: Any) -> Identity:
    """Return a caller whose token ends in five minutes."""
    given = {"scopes": frozenset({"mail:send"}), "tools": grants, **changes}
    return Identity(**{"subject": "did:web:a", "token_id": "t1", "expires_at": NOW.timestamp() + 300, **given})


def mail(version: str = "1.2.3", **facts: Any) -> CallFacts:
    """Return a call of acme.send_email."""
    return CallFacts(ToolName("acme", "send_email"), Version.parse(version), "read_only", **facts)
