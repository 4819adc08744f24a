"""ReplayPolicySet: asks another set the questions of recorded decisions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from services.authz.domain.decisions.check import verdict_of
from services.authz.domain.model import Allow, Deny, Fact, Outcome, Verdict
from services.authz.domain.policies.errors import set_not_found
from services.authz.domain.policies.model import Flip, Progress, Recorded
from services.authz.domain.policies.ports import DecisionRecords, ExplainingEngine, Library, PolicySets

USUAL = 10_000
# So many are asked before other calls get their turn, and so many between two messages.
_AT_ONCE, _TOLD = 10, 500


@dataclass(frozen=True)
class ReplayPolicySet:
    """Finds out what a set would answer otherwise. Changes nothing."""

    sets: PolicySets
    library: Library
    records: DecisionRecords

    async def __call__(self, number: int, most: int) -> AsyncIterator[Progress]:
        """Yield progress, and at last the whole count. Raises NOT_FOUND without such a set."""
        stored = await self.sets.find(number)
        engine = await self.library.of_version(stored.version) if stored is not None else None
        if engine is None:
            raise set_not_found(f"policySets/{number}")
        total = await self.records.count(most or USUAL)
        progress = Progress(0, total, 0)
        yield progress
        async for page in self.records.last(total):
            for begin in range(0, len(page), _AT_ONCE):
                progress = _further(engine, page[begin : begin + _AT_ONCE], progress)
                await asyncio.sleep(0)
                if progress.replayed % _TOLD < _AT_ONCE:
                    yield progress
                    progress = replace(progress, flips=())
        # Decisions that were let go meanwhile are not missed.
        yield replace(progress, total=progress.replayed)


def _further(engine: ExplainingEngine, some: list[Recorded], progress: Progress) -> Progress:
    flips, undecidable = list(progress.flips), progress.undecidable
    for recorded in some:
        if recorded.reads is None:
            # The token alone decided, and would again.
            continue
        if not _kept(recorded, (considered := engine.consider(recorded.question)).reads):
            undecidable += 1
            continue
        verdict = verdict_of(considered, recorded.question)
        if _kind(verdict.outcome) != _kind(recorded.decision.verdict.outcome):
            flips.append(_flip(recorded, verdict))
    return Progress(progress.replayed + len(some), progress.total, undecidable, tuple(flips))


def _kept(recorded: Recorded, reads: frozenset[Fact]) -> bool:
    """Say whether all that a set reads of a call was kept."""
    question = recorded.question
    arguments = Fact.ARGUMENTS not in reads or bool(question.call.arguments)
    return arguments and (Fact.LABELS not in reads or question.labels is not None)


def _flip(recorded: Recorded, verdict: Verdict) -> Flip:
    decision, call = recorded.decision, recorded.question.call
    return Flip(
        decision=decision.name,
        subject=recorded.question.caller.subject,
        tool_version=call.tool.version(str(call.version)),
        before=_kind(decision.verdict.outcome),
        after=_kind(verdict.outcome),
        policies=verdict.policies,
    )


def _kind(outcome: Outcome) -> str:
    if isinstance(outcome, Allow):
        return "allow"
    return "deny" if isinstance(outcome, Deny) else "needs_approval"
