"""ReplayPolicySet: evaluates another policy set for the requests of recorded decisions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec

from services.authz.domain.decisions.check import verdict_of
from services.authz.domain.model import ContextField, LabelSource, Verdict, outcome_word
from services.authz.domain.policies.errors import set_not_found
from services.authz.domain.policies.model import DecisionFlip, RecordedDecision, ReplayProgress
from services.authz.domain.policies.ports import (
    DecisionRecords,
    ExplainingEngine,
    LabelHistory,
    PolicyLibrary,
    PolicySets,
)

DEFAULT_DECISIONS = 10_000
# The event loop runs other calls after each batch; a message is sent after each _MESSAGE_EVERY decisions.
_BATCH, _MESSAGE_EVERY = 10, 500

_Labels = Mapping[str, Sequence[LabelSource]]
"""How labels came into sessions and chains of tokens."""


@dataclass(frozen=True)
class ReplayPolicySet:
    """Finds decisions that a policy set would make differently. Changes nothing."""

    sets: PolicySets
    library: PolicyLibrary
    records: DecisionRecords
    labels: LabelHistory

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
            labels = await _read_labels(page, self.labels)
            for begin in range(0, len(page), _BATCH):
                progress = _replay(engine, page[begin : begin + _BATCH], labels, progress)
                await asyncio.sleep(0)
                if progress.replayed % _MESSAGE_EVERY < _BATCH:
                    yield progress
                    progress = replace(progress, flips=())
        # Decisions may have been trimmed from the journal since they were counted.
        yield replace(progress, total=progress.replayed)


def _replay(
    engine: ExplainingEngine, batch: list[RecordedDecision], labels: _Labels, progress: ReplayProgress
) -> ReplayProgress:
    flips, undecidable = list(progress.flips), progress.undecidable
    for recorded in batch:
        if recorded.context_fields is None:
            # The token alone decided, which does not depend on the policy set.
            continue
        verdict = _verdict(engine, recorded, labels)
        if verdict is None:
            undecidable += 1
        elif outcome_word(verdict.outcome) != outcome_word(recorded.decision.verdict.outcome):
            flips.append(_flip(recorded, verdict))
    return ReplayProgress(progress.replayed + len(batch), progress.total, undecidable, tuple(flips))


def _verdict(engine: ExplainingEngine, recorded: RecordedDecision, labels: _Labels) -> Verdict | None:
    """Return the verdict of the set; None if it depends on something that the journal does not have."""
    request = recorded.request
    if request.labels is None:
        session, token = _labels_of(recorded, labels)
        request = msgspec.structs.replace(request, labels=session, token_labels=token)
    evaluation = engine.evaluate(request)
    if ContextField.ARGUMENTS in evaluation.context_fields and not request.call.arguments:
        return evaluation.certain_denial()
    return verdict_of(evaluation, request)


async def _read_labels(page: list[RecordedDecision], history: LabelHistory) -> _Labels:
    """Return the labels of the sessions where the set of that time did not read them."""
    scopes = {scope for recorded in page if recorded.request.labels is None for scope in recorded.label_scopes}
    return await history.sources(scopes) if scopes else {}


def _labels_of(recorded: RecordedDecision, labels: _Labels) -> tuple[frozenset[str], frozenset[str]]:
    """Return the labels of the call's session, and of its chain of tokens, when the decision was made."""
    time = recorded.request.time
    scopes = recorded.label_scopes
    held = {scope: [one for one in labels.get(scope, ()) if held_at(one, time)] for scope in scopes}
    session, chain = (scopes[index] if scopes else "" for index in (0, -1))
    return (
        frozenset(one.label for one in held.get(session, ()) if one.place == session),
        frozenset(one.label for one in held.get(chain, ())),
    )


def held_at(source: LabelSource, time: datetime) -> bool:
    """Return whether a session had a label for a decision of this time."""
    return source.added_at < time and (source.cleared_at is None or source.cleared_at >= time)


def _flip(recorded: RecordedDecision, verdict: Verdict) -> DecisionFlip:
    decision, call = recorded.decision, recorded.request.call
    return DecisionFlip(
        decision=decision.name,
        subject=recorded.request.caller.subject,
        tool_version=call.tool.version(str(call.version)),
        before=outcome_word(decision.verdict.outcome),
        after=outcome_word(verdict.outcome),
        policies=verdict.policies,
    )
