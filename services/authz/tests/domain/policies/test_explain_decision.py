"""ExplainDecision over fakes: asking every policy of a set holds up nobody."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from services.authz.domain.model import Decision, Question
from services.authz.domain.policies.explain_decision import ExplainDecision
from services.authz.domain.policies.model import Finding, Recorded
from services.authz.tests.adapters.cedar.test_engine import question
from services.authz.tests.deciding import NOW, YES, Engine


@dataclass
class Explaining(Engine):
    """An engine that notes on which thread it is asked about all of its policies."""

    threads: list[threading.Thread] = field(default_factory=list)

    def findings(self, question: Question) -> list[Finding]:
        self.threads.append(threading.current_thread())
        return [Finding("p1", "allow", True, False, "because", "a.cedar", 1)]


@dataclass
class Kept:
    """The one decision and the one set that there are."""

    engine: Explaining
    recorded: Recorded

    async def find(self, decision_id: str) -> Recorded | None:
        return self.recorded

    async def of_version(self, version: str) -> Any:
        return self.engine


async def test_policies_are_asked_beside_the_calls_that_wait_for_decisions() -> None:
    engine = Explaining()
    decision = Decision("decisions/1", YES, engine.version, True, NOW, NOW)
    kept: Any = Kept(engine, Recorded(decision, replace(question(), moment=NOW), frozenset()))
    explanation = await ExplainDecision(kept, kept)("1", None)
    assert [each.policy for each in explanation.findings] == ["p1"]
    assert engine.threads
    assert threading.current_thread() not in engine.threads
