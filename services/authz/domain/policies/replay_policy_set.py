"""ReplayPolicySet: evaluates another policy set for the requests of recorded decisions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from services.authz.domain.decisions.check import verdict_of
from services.authz.domain.model import Allow, ContextField, Deny, Outcome, Verdict
from services.authz.domain.policies.errors import set_not_found
from services.authz.domain.policies.model import DecisionFlip, RecordedDecision, ReplayProgress
from services.authz.domain.policies.ports import DecisionRecords, ExplainingEngine, PolicyLibrary, PolicySets

DEFAULT_DECISIONS = 10_000
# The event loop runs other calls after each batch; a message is sent after each _MESSAGE_EVERY decisions.
_BATCH, _MESSAGE_EVERY = 10, 500


@dataclass(frozen=True)
class ReplayPolicySet:
    """Finds decisions that a policy set would make differently. Changes nothing."""

    sets: PolicySets
    library: PolicyLibrary
    records: DecisionRecords

    async def execute(self, number: int, limit: int) -> AsyncIterator[ReplayProgress]:
        """Yield progress, and the total count at the end. Raises NOT_FOUND for a missing set."""
        stored = await self.sets.find(number)
        engine = await self.library.engine_for(stored.version) if stored is not None else None
        if engine is None:
            raise set_not_found(f"policySets/{number}")
        total = await self.records.count(limit or DEFAULT_DECISIONS)
        progress = ReplayProgress(0, total, 0)
        yield progress
        async for page in self.records.last(total):
            for begin in range(0, len(page), _BATCH):
                progress = _replay(engine, page[begin : begin + _BATCH], progress)
                await asyncio.sleep(0)
                if progress.replayed % _MESSAGE_EVERY < _BATCH:
                    yield progress
                    progress = replace(progress, flips=())
        # Decisions may have been trimmed from the journal since they were counted.
        yield replace(progress, total=progress.replayed)


def _replay(engine: ExplainingEngine, batch: list[RecordedDecision], progress: ReplayProgress) -> ReplayProgress:
    flips, undecidable = list(progress.flips), progress.undecidable
    for recorded in batch:
        if recorded.context_fields is None:
            # The token alone decided, which does not depend on the policy set.
            continue
        evaluation = engine.evaluate(recorded.request)
        if not _has_context(recorded, evaluation.context_fields):
            undecidable += 1
            continue
        verdict = verdict_of(evaluation, recorded.request)
        if _kind(verdict.outcome) != _kind(recorded.decision.verdict.outcome):
            flips.append(_flip(recorded, verdict))
    return ReplayProgress(progress.replayed + len(batch), progress.total, undecidable, tuple(flips))


def _has_context(recorded: RecordedDecision, context_fields: frozenset[ContextField]) -> bool:
    """Return whether the journal has all context fields that a set reads."""
    request = recorded.request
    arguments = ContextField.ARGUMENTS not in context_fields or bool(request.call.arguments)
    return arguments and (ContextField.LABELS not in context_fields or request.labels is not None)


def _flip(recorded: RecordedDecision, verdict: Verdict) -> DecisionFlip:
    decision, call = recorded.decision, recorded.request.call
    return DecisionFlip(
        decision=decision.name,
        subject=recorded.request.caller.subject,
        tool_version=call.tool.version(str(call.version)),
        before=_kind(decision.verdict.outcome),
        after=_kind(verdict.outcome),
        policies=verdict.policies,
    )


def _kind(outcome: Outcome) -> str:
    if isinstance(outcome, Allow):
        return "allow"
    return "deny" if isinstance(outcome, Deny) else "needs_approval"
