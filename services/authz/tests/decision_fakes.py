"""Fakes of the ports of Check."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from libs.common.auth.identity import Grant, Identity
from libs.common.semver import Version
from libs.common.testing.clock import ManualClock
from libs.common.tool_names import ToolName
from services.authz.domain.decisions.check import Check
from services.authz.domain.decisions.limits import Limits
from services.authz.domain.model import Allow, CallFacts, ContextField, Decision, DecisionRequest, FoundLabels, Verdict
from services.authz.domain.ports import PolicyEngine

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ALLOWED = Verdict(Allow(), ("because",), ("p1",))


@dataclass
class Engine:
    """A PolicyEngine with a fixed verdict that records its requests."""

    verdict: Verdict = ALLOWED
    version: str = "sha256:1"
    limits: Limits = Limits()
    fields: frozenset[ContextField] = frozenset()
    clears_labels: bool = False
    requests: list[DecisionRequest] = field(default_factory=list)

    def context_fields(self, request: DecisionRequest) -> frozenset[ContextField]:
        return self.fields

    def decide(self, request: DecisionRequest) -> Verdict:
        self.requests.append(request)
        return self.verdict

    def evaluate(self, request: DecisionRequest) -> FakeEvaluation:
        return FakeEvaluation(self, request)


@dataclass
class FakeEvaluation:
    """An Evaluation that delegates to its engine."""

    engine: Engine
    request: DecisionRequest

    @property
    def context_fields(self) -> frozenset[ContextField]:
        return self.engine.context_fields(self.request)

    def verdict(self, request: DecisionRequest) -> Verdict:
        return self.engine.decide(request)

    def certain_denial(self) -> Verdict | None:
        return None


@dataclass
class FixedProvider:
    """An EngineProvider with a settable engine."""

    current: PolicyEngine


@dataclass
class FakeLabels:
    """SessionLabels of one session in memory."""

    present: set[str] = field(default_factory=set)

    async def find(self, request: DecisionRequest) -> FoundLabels:
        return FoundLabels(frozenset(self.present), frozenset())

    async def add(self, request: DecisionRequest, labels: Iterable[str], decision: str) -> tuple[str, ...]:
        added = tuple(sorted(set(labels) - self.present))
        self.present.update(added)
        return added

    async def clear(self, request: DecisionRequest, labels: Iterable[str], decision: str) -> tuple[str, ...]:
        cleared = tuple(sorted(set(labels) & self.present))
        self.present.difference_update(cleared)
        return cleared


@dataclass
class FakeJournal:
    """A Journal in memory."""

    entries: list[tuple[Decision, DecisionRequest, frozenset[ContextField] | None]] = field(default_factory=list)

    def record(
        self, decision: Decision, request: DecisionRequest, context_fields: frozenset[ContextField] | None
    ) -> None:
        self.entries.append((decision, request, context_fields))


def unsatisfied(schema: bytes, arguments: Any) -> str | None:
    """A constraint checker that refuses everything, at /x."""
    return "/x"


def check_over(
    engine: PolicyEngine, *, ttl: int = 60, labels: FakeLabels | None = None, journal: FakeJournal | None = None
) -> Check:
    """Return a Check in dev."""
    return Check(
        engines=FixedProvider(engine),
        labels=labels or FakeLabels(),
        journal=journal or FakeJournal(),
        satisfies=unsatisfied,  # type: ignore[arg-type]
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
