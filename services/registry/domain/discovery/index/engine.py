"""The index with everything that is asked of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from services.registry.domain.discovery.environment import Eligibility, SurfaceEnvironment
from services.registry.domain.discovery.index.eligibility import assess_eligibility
from services.registry.domain.discovery.index.knapsack import choose
from services.registry.domain.discovery.index.tools import ToolIndex
from services.registry.domain.discovery.query import Query


class SearchEngine(ToolIndex):
    """Answers searches and surveys, and chooses what is worth its tokens."""

    def assess_eligibility(self, query: Query, environment: SurfaceEnvironment, now: datetime) -> Eligibility:
        """Return where every tool stands for a task in a place."""
        return assess_eligibility(self, query, environment, now)

    def worth(self, utilities: Sequence[float], tokens: Sequence[int], budget: int) -> Sequence[int]:
        """Return the positions of the pieces to take."""
        return choose(utilities, tokens, budget)
