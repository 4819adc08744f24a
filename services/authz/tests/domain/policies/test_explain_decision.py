"""ExplainDecision does not block the event loop."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from services.authz.domain.model import Decision, DecisionRequest
from services.authz.domain.policies.explain_decision import ExplainDecision
from services.authz.domain.policies.model import PolicyFinding, RecordedDecision
from services.authz.tests.adapters.cedar.test_engine import make_request
from services.authz.tests.decision_fakes import ALLOWED, NOW, Engine


@dataclass
class Explaining(Engine):
    """An engine that notes on which thread it is asked about all of its policies."""

    threads: list[threading.Thread] = field(default_factory=list)

    def findings(self, request: DecisionRequest) -> list[PolicyFinding]:
        self.threads.append(threading.current_thread())
        return [PolicyFinding("p1", "allow", True, False, "because", "a.cedar", 1)]


@dataclass
class Kept:
    """The one decision and the one set that there are."""

    engine: Explaining
    recorded: RecordedDecision

    async def find(self, decision_id: str) -> RecordedDecision | None:
        return self.recorded

    async def engine_for(self, version: str) -> Any:
        return self.engine


async def test_an_explanation_evaluates_policies_in_another_thread() -> None:
    engine = Explaining()
    decision = Decision("decisions/1", ALLOWED, engine.version, True, NOW, NOW)
    kept: Any = Kept(engine, RecordedDecision(decision, replace(make_request(), time=NOW), frozenset()))
    explanation = await ExplainDecision(kept, kept, kept).execute("1", None)
    assert [each.policy for each in explanation.findings] == ["p1"]
    assert engine.threads
    assert threading.current_thread() not in engine.threads
