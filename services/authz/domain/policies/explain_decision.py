"""ExplainDecision: says how a recorded decision came about."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from libs.common.auth.identity import Identity
from services.authz.domain.model import Allow, Decision, Deny, Fact, Question
from services.authz.domain.policies.errors import decision_not_found, set_not_found
from services.authz.domain.policies.model import Explanation, Finding, Recorded
from services.authz.domain.policies.ports import DecisionRecords, Library

# Who holds it may read decisions about others.
READ = "policies:read"


@dataclass(frozen=True)
class ExplainDecision:
    """Asks the set that decided again, policy by policy."""

    records: DecisionRecords
    library: Library

    async def __call__(self, decision_id: str, asker: Identity | None) -> Explanation:
        """Return the explanation; `asker` is None for who may read everything. Raises NOT_FOUND."""
        recorded = await self.records.find(decision_id)
        if recorded is None or not _may_read(asker, recorded.question):
            raise decision_not_found(f"decisions/{decision_id}")
        findings: list[Finding] = []
        if recorded.reads is not None:
            engine = await self.library.of_version(recorded.decision.policy_set_version)
            if engine is None:
                raise set_not_found(recorded.decision.policy_set_version)
            # Every policy of the set is asked, which takes a while where there are many: nobody's call waits for that.
            findings = await asyncio.to_thread(engine.findings, recorded.question)
        return Explanation(recorded, tuple(findings), _summary(recorded))


def _may_read(asker: Identity | None, question: Question) -> bool:
    return asker is None or READ in asker.scopes or asker.subject == question.caller.subject


def _summary(recorded: Recorded) -> str:
    decision, question = recorded.decision, recorded.question
    caller, tool = question.caller, question.call.tool.qualified
    who = f"{caller.agent} for {caller.subject}" if caller.agent and caller.agent != caller.subject else caller.subject
    lines = [f"{who} {_answer(decision)} {tool} {question.call.version} in {question.environment}."]
    lines += decision.verdict.reasons
    if decision.verdict.blocked_path:
        lines.append(f"It is about the argument {decision.verdict.blocked_path}.")
    if decision.verdict.obligations:
        kinds = ", ".join(f"{each.kind} {' '.join(each.values)}".strip() for each in decision.verdict.obligations)
        lines.append(f"It is bound to: {kinds}.")
    if decision.added_labels:
        lines.append(f"From then on the session carries: {', '.join(decision.added_labels)}.")
    if recorded.reads is None:
        lines.append("Policy was not asked: the token alone decided.")
    elif Fact.ARGUMENTS in recorded.reads and not question.call.arguments:
        lines.append("The arguments were not kept, so policies that read them are shown as if there were none.")
    return "\n".join(lines)


def _answer(decision: Decision) -> str:
    outcome = decision.verdict.outcome
    if isinstance(outcome, Allow):
        return "was allowed to call"
    return "was refused" if isinstance(outcome, Deny) else "needs a person's consent for"
