"""Recomputes scores: when a fact is added, and periodically because usage and age change."""

from __future__ import annotations

from datetime import timedelta

from libs.common.tool_names import ToolName
from services.registry.domain.trust.compute_score import TrustScorer

# The maximum age of a score before the sweep recomputes it.
FRESH = timedelta(hours=1)
# The batch of one sweep, read with one query each. Small, so that sweeps do not delay callers.
BATCH = 25


async def rescore(tool: ToolName, scorer: TrustScorer) -> None:
    """Compute the score of one tool and store it."""
    trust_score = await scorer.score(tool)
    await scorer.store.put_scores({trust_score.tool: trust_score.score}, scorer.clock.now())


async def sweep_scores(scorer: TrustScorer) -> int:
    """Recompute a batch of old or missing scores and return their number. Without usage an existing score is kept: a
    bad tool must not become neutral because the audit service is down."""
    due = dict(await scorer.store.unscored(scorer.clock.now() - FRESH, BATCH))
    results = await scorer.score_all(list(due))
    scores = {result.tool: result.score for result in results if result.facts.usage is not None or not due[result.tool]}
    if scores:
        await scorer.store.put_scores(scores, scorer.clock.now())
    return len(scores)
