"""Keeping scores: worked out anew when a fact is added, and from time to time because calls and time go on."""

from __future__ import annotations

from datetime import timedelta

from libs.common.tool_names import ToolName
from services.registry.domain.trust.compute_score import TrustScorer

# A score is worked out anew this often, by itself; a new fact about a tool does so at once.
FRESH = timedelta(hours=1)
# Of one sweep, which asks the log and the database about all of them at once. Few, so that sweeps are not felt by callers.
BATCH = 25


async def rescore(tool: ToolName, scorer: TrustScorer) -> None:
    """Work the score of one tool out and store it."""
    trust_score = await scorer.score(tool)
    await scorer.store.put_scores({trust_score.tool: trust_score.score}, scorer.clock.now())


async def sweep_scores(scorer: TrustScorer) -> int:
    """Work out the scores that are old or missing, a batch of them, and return how many. Where usage cannot be read, a
    score that is there stays: a bad tool must not look neutral because the log is away."""
    due = dict(await scorer.store.unscored(scorer.clock.now() - FRESH, BATCH))
    trust_score = await scorer.score_all(list(due))
    scores = {each.tool: each.score for each in trust_score if each.facts.usage is not None or not due[each.tool]}
    if scores:
        await scorer.store.put_scores(scores, scorer.clock.now())
    return len(scores)
